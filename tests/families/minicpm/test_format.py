"""MiniCPM5's `<function name="f">` calls, cut in every way."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phyla.messages import Tool
from phyla.testing.blocks import assert_same_in_pieces, read_block
from phyla.tools import ArgumentsDelta, CallFailed, CallStarted
from phyla_families.minicpm.format import FunctionTagFormat

# There are many texts: three times as many are tried as elsewhere, and more in a thorough run.
EXAMPLES = 3 * settings().max_examples
FORMAT = FunctionTagFormat()
TYPES = {
    "s": {"type": "string"},
    "n": {"type": "integer"},
    "l": {"type": "array"},
    "o": {"type": "object"},
    "b": {"type": "boolean"},
    "u": {"type": ["string", "null"]},
}
TOOLS = [
    Tool(name="f", parameters={"type": "object", "properties": TYPES}),
    Tool(name="pwd"),
]


def call(*params: str, name: str = "f") -> str:
    return f'<function name="{name}">{"".join(params)}</function>'


def param(key: str, value: str) -> str:
    return f'<param name="{key}">{value}</param>'


CALLS = {
    "text and a number": (
        call(param("s", "Paris"), param("n", "3")),
        [("f", {"s": "Paris", "n": 3})],
    ),
    "a Python list": (call(param("l", "[1, 'a', None]")), [("f", {"l": [1, "a", None]})]),
    "an object": (call(param("o", '{"k": true}')), [("f", {"o": {"k": True}})]),
    "Python's boolean": (call(param("b", "True")), [("f", {"b": True})]),
    "CDATA with a close tag": (
        call(param("s", "<![CDATA[a < b && c\n</param> x]]>")),
        [("f", {"s": "a < b && c\n</param> x"})],
    ),
    "CDATA with the function's end": (
        call(param("s", "<![CDATA[</param></function>]]>")),
        [("f", {"s": "</param></function>"})],
    ),
    "CDATA with its own end": (
        call(param("s", "<![CDATA[a]]]]><![CDATA[>b]]>")),
        [("f", {"s": "a]]>b"})],
    ),
    "CDATA of another type": (call(param("n", "\n<![CDATA[3]]>\n")), [("f", {"n": 3})]),
    "no CDATA": (call(param("s", "a < b & c")), [("f", {"s": "a < b & c"})]),
    "newlines at both ends": (call(param("s", "\n a \n")), [("f", {"s": " a "})]),
    "blanks at both ends": (call(param("s", " \na ")), [("f", {"s": " \na "})]),
    "a close tag in plain text": (
        call(param("s", "a</param>b")),
        [("f", {"s": "a</param>b"})],
    ),
    "single quotes and no parameters": ("<function name='pwd'></function>", [("pwd", {})]),
    "a lost space": ('<functionname="pwd"></function>', [("pwd", {})]),
    "spaces and other attributes": (
        '<function id="1"  name = "f" ><param type="x" name="s">a</param></function>',
        [("f", {"s": "a"})],
    ),
    "no quotes": ("<function name=f><param name=s>a</param></function>", [("f", {"s": "a"})]),
    "tags that close themselves": ('<function name="pwd"/>', [("pwd", {})]),
    "a newline between tags": (
        f'<function name="f">\n{param("s", "a")}\n</function>',
        [("f", {"s": "a"})],
    ),
    "null where it is allowed": (call(param("u", "None")), [("f", {"u": None})]),
    "text where null is allowed": (call(param("u", "123")), [("f", {"u": "123"})]),
    "a number without a schema": (call(param("x", "3")), [("f", {"x": 3})]),
    "text without a schema": (call(param("x", "a b")), [("f", {"x": "a b"})]),
}


@pytest.mark.parametrize(("text", "calls"), CALLS.values(), ids=CALLS)
def test_a_call_is_read_however_it_is_cut(text: str, calls: list[object]) -> None:
    found = assert_same_in_pieces(FORMAT, text, TOOLS)
    assert found.calls == calls
    assert not found.errors
    assert found.rest == ""


def test_a_block_is_one_call_and_what_follows_is_not_part_of_it() -> None:
    after = " and " + call(name="pwd")
    found = assert_same_in_pieces(FORMAT, call(param("s", "a")) + after, TOOLS)
    assert found.calls == [("f", {"s": "a"})]
    assert found.rest == after


@pytest.mark.parametrize(
    ("text", "raw"),
    [
        ("<functional> programming", "<functional"),
        ("<function> is a tag", "<function>"),
        ('<function name="unknown">', '<function name="'),
        ("<function name=unknown>", "<function name=unknown"),
        ('<function name="ff">', '<function name="f'),
        ("<function pointers", "<function pointers"),
    ],
)
def test_bug_23_prose_about_functions_is_given_back(text: str, raw: str) -> None:
    found = read_block(FORMAT, [text + " x"], TOOLS)
    assert [(error.prose, error.index) for error in found.errors] == [(True, None)]
    assert found.errors[0].raw.strip() == raw
    assert assert_same_in_pieces(FORMAT, text + " x", TOOLS) == found
    assert read_block(FORMAT, [call(name="f")], ()).errors[0].prose


@pytest.mark.parametrize(
    "text",
    [
        '<function name="f"><param name="s">trunc',
        '<function name="f"><param name="s"><![CDATA[trunc</param></function>',
        '<function name="f"><param name="n">1</param>',
        '<function name="f"><par',
        '<function name="f',
        "<function",
    ],
)
def test_bug_33_a_call_that_the_end_cuts_is_incomplete_and_keeps_its_text(text: str) -> None:
    found = assert_same_in_pieces(FORMAT, text, TOOLS)
    assert [(error.raw, error.incomplete) for error in found.errors] == [(text, True)]
    assert found.calls == []


@pytest.mark.parametrize(
    "inside", [param("s", "1") + param("s", "2"), "x", "<b>", '<param type="s">x</param>']
)
def test_a_broken_call_is_an_error_up_to_its_end(inside: str) -> None:
    text = call(inside)
    found = assert_same_in_pieces(FORMAT, text + "x", TOOLS)
    assert [error.raw for error in found.errors] == [text]
    assert not found.errors[0].incomplete
    assert found.rest == "x"


def test_text_comes_as_it_is_written() -> None:
    parser = FORMAT.block(TOOLS)
    assert parser.feed('<function name="f">') == [CallStarted(0, "f")]
    assert parser.feed('<param name="s">Hel') == [ArgumentsDelta(0, '{"s": "Hel')]
    assert parser.feed("lo</par") == [ArgumentsDelta(0, "lo")]
    assert parser.feed('am><param name="s">x') == [ArgumentsDelta(0, '"')]
    assert [type(event) for event in parser.feed("</function>")] == [CallFailed]


@pytest.mark.parametrize("tool", [None, "f"])
def test_a_seeded_opening_goes_on_to_be_a_call(tool: str | None) -> None:
    more = ('f">' if tool is None else "") + param("n", "1") + "</function>"
    assert read_block(FORMAT, [FORMAT.opening(tool), more], TOOLS).calls == [("f", {"n": 1})]


PIECES = st.lists(
    st.sampled_from(
        ["<function", ' name="f"', ' name="', "f", '"', "'", ">", "/>", "</function>", "<param",
         ' name="s"', ' name="n"', "</param>", "<![CDATA[", "]]>", "]", "<", "</", "=", " ", "\n",
         "12", "abc", "é", "😀", "&", '<param name="s">', '<param name="l">', "[1, 'a']", "name"]
    )
    | st.text(max_size=3),
    max_size=16,
)  # fmt: skip


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.sampled_from(["<function", '<function name="f">']), PIECES)
def test_no_text_raises_or_is_lost_and_no_cut_matters(opening: str, pieces: list[str]) -> None:
    text = opening + "".join(pieces)
    whole = read_block(FORMAT, [text], TOOLS)
    assert read_block(FORMAT, [opening, *pieces], TOOLS) == whole
    assert read_block(FORMAT, text, TOOLS) == whole


@settings(max_examples=100, deadline=None)
@given(st.text().filter(lambda value: "]]>" not in value))
def test_any_text_in_cdata_is_read_exactly(value: str) -> None:
    found = read_block(FORMAT, [call(param("s", f"<![CDATA[{value}]]>"))], TOOLS)
    assert found.calls == [("f", {"s": value})]
