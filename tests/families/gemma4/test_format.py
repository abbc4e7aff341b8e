"""Gemma 4's tool calls: the fact sheet's examples, real failures of others, and any text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phyla.messages import Tool
from phyla.testing.blocks import assert_same_in_pieces, read_block
from phyla.tools import ArgumentsDelta, CallStarted
from phyla.tools.calls import StreamedBlock
from phyla_families.gemma4.format import END, QUOTE, START, TOOL_CALLS

EXAMPLES = settings().max_examples
CODES = Tool(name="f", parameters={"type": "object", "properties": {"code": {"type": "string"}}})

# In these texts S stands for the quote token.
CALLS = [
    ("call:clock{}", [("clock", {})]),
    (
        "call:light{room:SKitchenS,level:40,on:true}",
        [("light", {"room": "Kitchen", "level": 40, "on": True})],
    ),
    (
        'call:s{q:Swhat\'s "new", {today}?S,limit:5}',
        [("s", {"q": 'what\'s "new", {today}?', "limit": 5})],
    ),
    (
        "call:patch-file{edits:[{old:Sx=1S,new:SS},{old:Sy:2S}]}",
        [("patch-file", {"edits": [{"old": "x=1", "new": ""}, {"old": "y:2"}]})],
    ),
    (
        "call:a{n:-1.5e3}call:mcp.cal:list{when:null}",
        [("a", {"n": -1500.0}), ("mcp.cal:list", {"when": None})],
    ),
    (
        "call:f{opts:{deep:{er:[1,2,[3]]}},tag:plain}",
        [("f", {"opts": {"deep": {"er": [1, 2, [3]]}}, "tag": "plain"})],
    ),
    ("call:f{ a : 1 , b : [ 2 , 3 ] , }", [("f", {"a": 1, "b": [2, 3]})]),
    ("call:f{a:None,b:True,c:False}", [("f", {"a": None, "b": True, "c": False})]),
    ("call:f(a=1, b='x')", [("f", {"a": 1, "b": "x"})]),
    ('call:f{SkS:1,"q":2}', [("f", {"k": 1, "q": 2})]),
    # What the 26B model wrote in the place of `:` (vllm-project/vllm, pull request 51307).
    ('call:f{a:SxS,b=["d"],c="S., \\"T\\", 2"}', None),
    ("call:f{url:https://x.y/a,b,k:2}", [("f", {"url": "https://x.y/a,b", "k": 2})]),
    ("call:f{a:1e999,b:02134}", [("f", {"a": "1e999", "b": "02134"})]),
    (f"call:f{{a:S{END}S}}", [("f", {"a": END})]),
    ("call:f{a:Sx<yS,b:S<|S}", [("f", {"a": "x<y", "b": "<|"})]),
]


def spelled(text: str) -> str:
    return text.replace("S", QUOTE)


@pytest.mark.parametrize(("text", "calls"), CALLS)
def test_calls_are_read_alike_in_all_pieces(text, calls):
    if calls is None:
        text = text.replace('"S.', '"s.')
        calls = [("f", {"a": "x", "b": ["d"], "c": 's., "T", 2'})]
    found = assert_same_in_pieces(TOOL_CALLS, f"{START}{spelled(text)}{END}")
    assert found.calls == calls
    assert not found.errors
    assert found.rest == ""


def test_bug_25_inner_quotes_do_not_end_a_text():
    body = spelled("call:f{code:Sq(SSS s SSS).df()S,r:[SdS]}")
    found = assert_same_in_pieces(TOOL_CALLS, START + body + END)
    assert found.calls == [("f", {"code": spelled("q(SSS s SSS).df()"), "r": ["d"]})]
    assert found.notes == ("a quote mark inside a string was kept",)


@pytest.mark.parametrize(
    ("text", "name", "arguments"),
    [
        (
            'call:f{data_refs:["ds_1"],o:{"mode": "fast"}}',
            "f",
            {"data_refs": ["ds_1"], "o": {"mode": "fast"}},
        ),
        ("call:f{name:'a, b: c'}", "f", {"name": "a, b: c"}),
        ("call:google:mcp:create-pdf{a:SxS}", "google:mcp:create-pdf", {"a": "x"}),
    ],
)
def test_bug_26_other_quotes_and_colons_in_names_are_read(text, name, arguments):
    found = assert_same_in_pieces(TOOL_CALLS, f"{START}{spelled(text)}{END}")
    assert found.calls == [(name, arguments)]


@pytest.mark.parametrize(
    "value",
    [
        'The user said "你好" (Hello), ok',
        "a\nb\tc",
        r"\d+",
        "note:{x:1}",
        "},{",
        "],b:1",
        "```",
        "",
    ],
)
def test_bug_27_a_text_comes_back_exactly(value):
    text = f"{START}call:f{{reason:{QUOTE}{value}{QUOTE},n:1}}{END}"
    found = assert_same_in_pieces(TOOL_CALLS, text)
    assert found.calls == [("f", {"reason": value, "n": 1})]
    assert not found.notes


def test_a_schema_keeps_bare_digits_as_text():
    found = read_block(TOOL_CALLS, [f"{START}call:f{{code:42,n:42}}{END}"], [CODES])
    assert found.calls == [("f", {"code": "42", "n": 42})]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("call:f{a}", "expected ':'"),
        ("call:f{a:}", "missing"),
        ("call:f{a:1<", "ended"),
        ("call:f{a:[1}", "expected ','"),
        ("call:f{a:1,a:2}", "twice"),
        ("call:f{a:SabcE", "not closed"),
        ("call:f{,}", "expected a key"),
        ("call:f(a=oops)", "not a value"),
    ],
)
def test_what_cannot_be_read_is_an_error_and_the_next_call_is_not(text, reason):
    text = START + spelled(text.removesuffix("E"))
    cut = text.endswith("<")
    follow = "" if cut else f"{END}{START}call:g{{b:{QUOTE}x{QUOTE}}}{END}"
    found = assert_same_in_pieces(TOOL_CALLS, text + follow)
    (error,) = found.errors
    assert reason in error.reason
    assert error.incomplete == cut
    if not cut:
        assert read_block(TOOL_CALLS, [found.rest]).calls == [("g", {"b": "x"})]


@pytest.mark.parametrize("text", ["", "cal", "call:f", "call:f{", "call:f{a:1", 'call:f{a:<|"'])
def test_a_call_that_is_cut_off_is_incomplete(text):
    (error,) = assert_same_in_pieces(TOOL_CALLS, START + text).errors
    assert error.incomplete
    assert error.raw == START + text


def test_a_missing_end_is_noted():
    found = assert_same_in_pieces(TOOL_CALLS, f"{START}call:f{{a:1}}<|tool_response>")
    assert found.calls == [("f", {"a": 1})]
    assert found.notes == ("the closing marker was missing",)
    assert found.rest == "<|tool_response>"


@pytest.mark.parametrize("text", [" opens a call.", "call me", "call:me later", "f{}"])
def test_bug_23_a_marker_in_prose_is_given_back(text):
    found = assert_same_in_pieces(TOOL_CALLS, START + text)
    assert found.errors[0].prose
    assert found.rest == text


def test_names_and_texts_are_told_as_they_come():
    parser = TOOL_CALLS.block([])
    assert parser.feed(f"{START}call:f{{") == [CallStarted(0, "f")]
    assert parser.feed(f"a:{QUOTE}on") == [ArgumentsDelta(0, '{"a": "on')]
    assert parser.feed("ce <|") == [ArgumentsDelta(0, "ce ")]
    assert parser.feed('"|>,b:12') == [ArgumentsDelta(0, '", "b": ')]
    assert parser.feed("}") == [ArgumentsDelta(0, "12}")]


def test_a_long_argument_is_not_kept_and_read_again():
    parser = TOOL_CALLS.block([])
    assert isinstance(parser, StreamedBlock)
    text = f"{START}call:f{{a:{QUOTE}" + "ab, {<x>}: " * 500
    for at in range(0, len(text), 4):
        parser.feed(text[at : at + 4])
        assert len(parser._cursor.unread) < 20


def test_openings_are_what_the_parser_reads():
    assert read_block(TOOL_CALLS, [TOOL_CALLS.opening("f"), "}"]).calls == [("f", {})]
    assert TOOL_CALLS.opening(None) == f"{START}call:"


keys = st.from_regex(r"[a-z][a-z0-9_.\-]{0,8}", fullmatch=True)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text().filter(lambda text: not text.endswith("<")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=6,
)
noise = st.lists(
    st.sampled_from(
        [
            *"'\"\\[](){},:=<>| \nax19.-",
            *(START, END, QUOTE, "<|", "<tool_c", "call:", "call:g{", "a:", "b=", f"{QUOTE},b:"),
            *("true", "null", "1e999", "é"),
        ]
    )
    | st.text(max_size=4),
    max_size=25,
).map("".join)


def written(value: object) -> str:
    """A value as the template writes it."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return QUOTE + value + QUOTE
        case list():
            return f"[{','.join(map(written, value))}]"
        case dict():
            return f"{{{','.join(f'{key}:{written(item)}' for key, item in value.items())}}}"
        case _:
            return str(value)


@settings(max_examples=EXAMPLES, deadline=None)
@given(keys, st.dictionaries(keys, values, max_size=4), st.lists(st.integers(1, 30), max_size=30))
def test_what_the_template_writes_is_read_in_any_pieces(name, arguments, sizes):
    text = f"{START}call:{name}{written(arguments)}{END}"
    found = read_block(TOOL_CALLS, in_pieces(text, sizes))
    assert found.calls == [(name, arguments)]
    assert not found.notes


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    noise,
    st.lists(st.integers(1, 9), max_size=40),
    st.sampled_from(["", "call:g{", "call:g{a:", f"call:g{{a:{QUOTE}", "call:g(a="]),
)
def test_any_text_is_read_alike_in_any_pieces_and_not_lost(text, sizes, head):
    text = START + head + text
    whole = read_block(TOOL_CALLS, [text], [CODES])
    assert read_block(TOOL_CALLS, in_pieces(text, sizes), [CODES]) == whole
    assert read_block(TOOL_CALLS, text, [CODES]) == whole


def in_pieces(text: str, sizes: list[int]) -> list[str]:
    pieces = []
    for size in sizes:
        pieces.append(text[:size])
        text = text[size:]
    return [*pieces, text]
