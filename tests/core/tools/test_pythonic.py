"""Calls in Python's syntax and their JSON spelling, between markers and without."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from phyla.messages import Tool
from phyla.testing.blocks import assert_same_in_pieces, read_block
from phyla.tools import ArgumentsDelta, CallFailed, CallStarted
from phyla.tools.calls import StreamedBlock
from phyla.tools.pythonic import PythonicFormat

EXAMPLES = settings().max_examples
START, END = "<call>", "</call>"
MARKED = PythonicFormat(start=START, end=END)
FENCED = PythonicFormat(start=START, end=END, fence="python")
BARE = PythonicFormat()
WEATHER = Tool(
    name="get_weather",
    parameters={
        "type": "object",
        "properties": {"city": {"type": "string"}, "unit": {"type": "string"}},
    },
)
PING = Tool(name="g")

# Bug 28 of the collection of real failures: what other parsers cut, merged or dropped.
BUG_28 = {
    "a comma in a quoted text": (
        "[write(filePath='src/h.py', content='# Hello, world!')]",
        [("write", {"filePath": "src/h.py", "content": "# Hello, world!"})],
    ),
    "two calls": ('[f1(a=1), f2(b="x")]', [("f1", {"a": 1}), ("f2", {"b": "x"})]),
    "brackets in a text": ('[foo(note="a)]b", k=2)]', [("foo", {"note": "a)]b", "k": 2})]),
    "a keyword as a name": ("[memory_get(from=1)]", [("memory_get", {"from": 1})]),
    "a heredoc with raw newlines": (
        "[sh(command='cat > f << EOF\nhi ]\nEOF')]",
        [("sh", {"command": "cat > f << EOF\nhi ]\nEOF"})],
    ),
    "a negative number": ("[f(longitude=-74.0046539)]", [("f", {"longitude": -74.0046539})]),
    "a tuple": ("[f(size=(800, 600))]", [("f", {"size": [800, 600]})]),
    "a dotted name": ("[a.b(x=1)]", [("a.b", {"x": 1})]),
    "an argument by its place": (
        "[get_weather('Paris', unit='c')]",
        [("get_weather", {"city": "Paris", "unit": "c"})],
    ),
    "an escaped backslash at the end": (r"[f(p='C:\\', q=1)]", [("f", {"p": "C:\\", "q": 1})]),
    "a plain backslash at the end": (r"[f(p='C:\', q=1)]", [("f", {"p": "C:\\", "q": 1})]),
    "a plain backslash at the very end": (r"[f(p='C:\')]", [("f", {"p": "C:\\"})]),
    "a plain backslash before another text": (
        r"[f(p='C:\', q='x'), g()]",
        [("f", {"p": "C:\\", "q": "x"}), ("g", {})],
    ),
}
# What the fact sheet of LFM2 lists beside these.
OTHERS = {
    "json constants": (
        '[plan(stops=[{"city": "Oslo", "n": null}], opts={"flex": true})]',
        [("plan", {"stops": [{"city": "Oslo", "n": None}], "opts": {"flex": True}})],
    ),
    "python constants": (
        "[f(flag=True, other=None, ratio=-0.5)]",
        [("f", {"flag": True, "other": None, "ratio": -0.5})],
    ),
    "an escaped newline": (
        "[write(content='print(\"hi, you\")\\nx = [1, 2]')]",
        [("write", {"content": 'print("hi, you")\nx = [1, 2]'})],
    ),
    "an apostrophe": ("[note(text='it's here, ok')]", [("note", {"text": "it's here, ok"})]),
    "objects": (
        '[{"name": "f", "arguments": {"a": "b"}}, {"parameters": {}, "id": "7", "name": "g"}]',
        [("f", {"a": "b"}), ("g", {})],
    ),
    "one object": ('{"name": "f", "arguments": "{\\"a\\": 1}"}', [("f", {"a": 1})]),
    "openai objects": (
        '[{"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}]',
        [("f", {"a": 1})],
    ),
    "a merged dictionary": ("[f(a=1, **{'q': 'x'})]", [("f", {"a": 1, "q": "x"})]),
    "one dictionary": ("[get_weather({'city': 'Oslo'})]", [("get_weather", {"city": "Oslo"})]),
    "no arguments": ("[g( )]", [("g", {})]),
    "white space": ("\n[ f ( a = 1 ,\n b = 2, ) ]\n", [("f", {"a": 1, "b": 2})]),
    "no brackets": ("f(a=1)\ng()", [("f", {"a": 1}), ("g", {})]),
    "the end marker in a text": ("[f(s='</call>')]", [("f", {"s": "</call>"})]),
    "a fence": ("\n```python\nf(a=1)\n# why\ng()\n```\n", [("f", {"a": 1}), ("g", {})]),
    "a fenced list": ("```\n[f(a=1), g()]\n```", [("f", {"a": 1}), ("g", {})]),
    "unicode": ("[f(ключ='значение 你好 😀')]", [("f", {"ключ": "значение 你好 😀"})]),
    "a triple-quoted text": ("[f(a='''it's, b=1\n''')]", [("f", {"a": "it's, b=1\n"})]),
    "quoted code": (
        r"[f(code='g(a=\'x\', b=1)', n=2)]",
        [("f", {"code": "g(a='x', b=1)", "n": 2})],
    ),
}


@pytest.mark.parametrize("case", BUG_28)
def test_bug_28_calls_are_read_exactly(case):
    text, calls = BUG_28[case]
    found = assert_same_in_pieces(MARKED, f"{START}{text}{END}", [WEATHER, PING])
    assert found.calls == calls
    assert not found.errors
    assert found.rest == ""


@pytest.mark.parametrize("case", OTHERS)
def test_calls_are_read(case):
    text, calls = OTHERS[case]
    found = assert_same_in_pieces(MARKED, f"{START}{text}{END}", [WEATHER, PING])
    assert found.calls == calls
    assert not found.errors


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[calc(x=1e999), g(y=1)]", "too large"),
        ("[calc(x=oops), g(y=1)]", "not a value"),
        ("[calc(x=), g(y=1)]", "no value"),
        ("[calc(x=[1,), g(y=1)]", "no value"),
        ("[calc(x=1+2, y='a)'), g(y=1)]", "no number"),
        ("[calc('x'), g(y=1)]", "has no name"),
        ("[calc(x=1, x=2), g(y=1)]", "twice"),
        ("[a calc(x=1), g(y=1)]", "expected a call"),
        ('[{"arguments": {}}, g(y=1)]', "has no name"),
        ('[{"name": "calc", "arguments": [1]}, g(y=1)]', "no object"),
        ("```\ncalc(x=oops\ng(y=1)\n```", "not a value"),
    ],
)
def test_bug_28_only_the_broken_call_is_an_error(text, reason):
    found = assert_same_in_pieces(MARKED, f"{START}{text}{END}after", [PING])
    assert found.calls == [("g", {"y": 1})]
    (error,) = found.errors
    assert reason in error.reason
    assert not error.incomplete
    assert found.rest == "after"


def test_a_broken_call_behind_a_good_one_is_an_error():
    found = assert_same_in_pieces(MARKED, f"{START}[g(y=1), oops]{END}", [PING])
    assert found.calls == [("g", {"y": 1})]
    assert [error.raw for error in found.errors] == [f", oops]{END}"]


@pytest.mark.parametrize(
    "text",
    ["[f(a='Par", "[f(a=1", "[f(a=[1", "[f", "[f(", "", '[{"name": "f", ', "[f(a=", r"[f(a='\'"],
)
def test_a_call_that_is_cut_off_is_incomplete(text):
    found = assert_same_in_pieces(MARKED, START + text)
    assert not found.calls
    (error,) = found.errors
    assert error.incomplete
    assert error.raw == START + text


def test_a_call_behind_a_complete_one_is_incomplete():
    found = assert_same_in_pieces(MARKED, f"{START}[f(a=1), g(b='")
    assert found.calls == [("f", {"a": 1})]
    assert [error.incomplete for error in found.errors] == [True]


@pytest.mark.parametrize("text", ["[f(a=1)]", "[f(a=1)", "[f(a=1)]  "])
def test_a_missing_end_is_noted(text):
    found = assert_same_in_pieces(MARKED, START + text)
    assert found.calls == [("f", {"a": 1})]
    assert "the closing marker was missing" in found.notes


def test_what_follows_a_block_is_given_back():
    assert assert_same_in_pieces(MARKED, f"{START}[f(a=1)]{END} and I'll go").rest == " and I'll go"
    assert assert_same_in_pieces(MARKED, f"{START}[f(a=1)] and more").rest == " and more"
    assert assert_same_in_pieces(MARKED, f"{START}f(a=1)\nand more").rest == "\nand more"


def test_an_unclosed_text_ends_with_the_block():
    found = assert_same_in_pieces(MARKED, f"{START}[f(a='b{END}Then I'll go")
    assert [error.reason for error in found.errors] == ["a string is not closed"]
    assert found.rest == "Then I'll go"


@pytest.mark.parametrize(
    "text",
    [" before the list. Done.", "[link](https://x.y) here", "[1, 2]", "f of x", "("],
)
def test_bug_23_a_marker_in_prose_is_given_back_at_once(text):
    found = assert_same_in_pieces(MARKED, START + text)
    (error,) = found.errors
    assert error.prose
    assert error.raw == START
    assert found.rest == text


def test_bug_23_prose_is_known_before_the_output_ends():
    parser = MARKED.block([])
    (event,) = parser.feed(f"{START} before th")
    assert isinstance(event, CallFailed)
    assert parser.rest == " before th"


def test_an_empty_block_is_an_error():
    for text in (f"{START}[]{END}", f"{START}{END}"):
        (error,) = assert_same_in_pieces(MARKED, text).errors
        assert error.raw == text


def test_without_markers_only_a_tool_s_name_opens_a_block():
    found = assert_same_in_pieces(BARE, "[g(a=1), f(b=2)]", [PING])
    assert found.calls == [("g", {"a": 1}), ("f", {"b": 2})]
    for text in ("[f(a=1)]", "[1, 2]", "[see g(x)]", "[", "[]"):
        (error,) = assert_same_in_pieces(BARE, text, [PING]).errors
        assert error.prose
        assert error.raw == "["


def test_names_and_texts_are_told_as_they_come():
    parser = MARKED.block([])
    assert parser.feed(f"{START}[f(") == [CallStarted(0, "f")]
    assert parser.feed("a='on") == [ArgumentsDelta(0, '{"a": "on')]
    assert parser.feed("ce\n") == [ArgumentsDelta(0, "ce\\n")]
    assert parser.feed("', b=12") == [ArgumentsDelta(0, '", "b": ')]
    assert parser.feed("3)") == [ArgumentsDelta(0, "123}")]


def test_repairs_are_noted():
    found = read_block(MARKED, [f"{START}[get_weather('it's \\d')]{END}"], [WEATHER])
    assert found.calls == [("get_weather", {"city": "it's \\d"})]
    assert len(found.notes) == 3


def test_openings_are_what_the_parser_reads():
    for form, text in (
        (MARKED, f"{START}[g("),
        (FENCED, f"{START}\n```python\ng("),
        (BARE, "[g("),
    ):
        assert form.opening("g") == text
        assert form.opening(None) == text.removesuffix("g(")
        assert read_block(form, [form.opening("g"), ")"], [PING]).calls == [("g", {})]


def test_a_long_argument_is_not_kept_and_read_again():
    parser = MARKED.block([])
    assert isinstance(parser, StreamedBlock)
    text = f"{START}[f(a='" + "ab, \\n(x)" * 500
    for at in range(0, len(text), 4):
        parser.feed(text[at : at + 4])
        assert len(parser._cursor.unread) < 20


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
names = st.from_regex(r"[a-z_][a-z0-9_.]{0,8}", fullmatch=True)
noise = st.lists(
    st.sampled_from(
        [
            *"'\"\\[](){},:=<>*#; \nax19.-",
            *(START, END, "</ca", "<cal", "f(", "g(a=", "', ", "')", "]", "```", "```python\n"),
            *('{"name": ', '"arguments": ', "True", "1e999", "\\'", "'''", "é"),
        ]
    )
    | st.text(max_size=4),
    max_size=25,
).map("".join)


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    st.lists(
        st.tuples(names, st.dictionaries(names, json_values, max_size=3)), min_size=1, max_size=3
    ),
    st.lists(st.integers(1, 30), max_size=30),
)
def test_what_python_writes_is_read_in_any_pieces(calls, sizes):
    inner = ", ".join(
        f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"
        for name, arguments in calls
    )
    text = f"{START}[{inner}]{END}"
    found = read_block(MARKED, in_pieces(text, sizes))
    assert found.calls == calls
    assert not found.errors
    assert not found.notes


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    noise,
    st.lists(st.integers(1, 9), max_size=40),
    st.sampled_from([MARKED, FENCED, BARE]),
    st.sampled_from(["", "[", "[g(", "[g(a='"]),
)
@example('</call>a";f(\\\'\', "x": **</call>g', [25], MARKED, "[g(a='")
@example("```[.```", [], FENCED, "")
@example("```\nf()\n]", [], FENCED, "")
def test_any_text_is_read_alike_in_any_pieces_and_not_lost(text, sizes, form, head):
    text = (form.start or "[") + head.removeprefix("[" if form is BARE else "") + text
    tools = [PING, WEATHER]
    whole = read_block(form, [text], tools)
    assert read_block(form, in_pieces(text, sizes), tools) == whole
    assert read_block(form, text, tools) == whole


def in_pieces(text: str, sizes: list[int]) -> list[str]:
    pieces = []
    for size in sizes:
        pieces.append(text[:size])
        text = text[size:]
    return [*pieces, text]
