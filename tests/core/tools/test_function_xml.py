"""Functions and parameters as tags, `<function=f>`, cut in every way."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phyla.messages import Tool
from phyla.testing.blocks import assert_same_in_pieces, read_block
from phyla.tools import ArgumentsDelta, CallFailed, CallStarted, FunctionXmlFormat

# There are many texts: three times as many are tried as elsewhere, and more in a thorough run.
EXAMPLES = 3 * settings().max_examples
FORMAT = FunctionXmlFormat()
TYPES = {
    "s": {"type": "string"},
    "i": {"type": "integer"},
    "n": {"type": "number"},
    "b": {"type": "boolean"},
    "o": {"type": "object"},
    "a": {"type": "array"},
    "u": {"type": ["string", "null"]},
}
TOOLS = [
    Tool(name="f", parameters={"type": "object", "properties": TYPES}),
    Tool(name="g", parameters={"type": "object", "properties": TYPES}),
]


def parameter(key: str, value: str) -> str:
    return f"<parameter={key}>\n{value}\n</parameter>"


def function(*parameters: str, name: str = "f") -> str:
    return f"<function={name}>\n{''.join(parameters)}\n</function>"


def block(*parameters: str, name: str = "f") -> str:
    return f"<tool_call>\n{function(*parameters, name=name)}\n</tool_call>"


CALLS = {
    "an integer": (block(parameter("i", "7")), [("f", {"i": 7})]),
    "a zero fraction": (block(parameter("i", "3.0")), [("f", {"i": 3})]),
    "an exponent": (block(parameter("n", "1e3")), [("f", {"n": 1000})]),
    "a boolean": (block(parameter("b", "True")), [("f", {"b": True})]),
    "an object": (block(parameter("o", '{"t":["x<y>"]}')), [("f", {"o": {"t": ["x<y>"]}})]),
    "a Python list": (block(parameter("a", "[1,2,'x']")), [("f", {"a": [1, 2, "x"]})]),
    "a string with tags": (
        block(parameter("s", ' "q"\n\n<b>&amp;</b>')),
        [("f", {"s": ' "q"\n\n<b>&amp;</b>'})],
    ),
    "two functions in a wrapper": (
        f"<tool_call>{function()}\n\n{function(name='g')}</tool_call>",
        [("f", {}), ("g", {})],
    ),
    "a value that nothing closes": (
        "<tool_call>\n<function=f>\n<parameter=s>\nabc\n</function>\n</tool_call>",
        [("f", {"s": "abc"})],
    ),
    "no parameters": (block(name="now"), [("now", {})]),
    "no newlines": (
        "<tool_call><function=f><parameter=s>x</parameter></function></tool_call>",
        [("f", {"s": "x"})],
    ),
    "a JSON body": ('<tool_call><function=f>{"s":"1"}</function></tool_call>', [("f", {"s": "1"})]),
    "a JSON object for the function": (
        '<tool_call>\n{"name": "f", "arguments": {"s": 1}}\n</tool_call>',
        [("f", {"s": 1})],
    ),
    "no end of the function": (
        "<tool_call>\n<function=f>\n<parameter=s>\nx\n</parameter>\n</tool_call>",
        [("f", {"s": "x"})],
    ),
    "no end of the wrapper": (
        "<tool_call>\n<function=f>\n<parameter=i>\n1\n</parameter>\n</function>",
        [("f", {"i": 1})],
    ),
    "a key of two lines of text": (block(parameter("s", "")), [("f", {"s": ""})]),
    "a key given twice": (
        block(parameter("s", "a"), parameter("s", "b")),
        [("f", {"s": "b"})],
    ),
    "quotes around names": (
        '<tool_call><function="f"><parameter="s">x</parameter></function></tool_call>',
        [("f", {"s": "x"})],
    ),
    "an unknown key": (block(parameter("x", "5")), [("f", {"x": "5"})]),
    "an unknown key with a list": (block(parameter("x", "[5]")), [("f", {"x": [5]})]),
}


@pytest.mark.parametrize(("text", "calls"), CALLS.values(), ids=CALLS)
def test_a_call_is_read_however_it_is_cut(text: str, calls: list[object]) -> None:
    found = assert_same_in_pieces(FORMAT, text, TOOLS)
    assert found.calls == calls
    assert not found.errors
    assert found.rest == ""


@pytest.mark.parametrize("text", ["2026-01-15", "inf"])
def test_bug_29_a_value_of_the_wrong_type_stays_text_and_is_noted(text: str) -> None:
    found = assert_same_in_pieces(FORMAT, block(parameter("i", text)), TOOLS)
    assert found.calls == [("f", {"i": text})]
    assert found.notes == (f"i: {text!r} is not of type integer",)


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("s", "02134", "02134"),
        ("s", "1e5", "1e5"),
        ("s", "true", "true"),
        ("s", "null", "null"),
        ("i", "5.0", 5),
        ("u", "123", "123"),
        ("u", "null", None),
        ("x", "02134", "02134"),
    ],
)
def test_bug_30_the_schema_decides_the_type(key: str, text: str, value: object) -> None:
    found = read_block(FORMAT, [block(parameter(key, text))], TOOLS)
    assert found.calls == [("f", {key: value})]
    assert type(found.calls[0][1][key]) is type(value)
    assert found.notes == ()


BUG_31 = {
    "an object in Python's quotes": (block(parameter("o", "{'k': 'v'}")), {"o": {"k": "v"}}),
    "an object that is shell text": (block(parameter("o", "ls {a,b}")), {"o": "ls {a,b}"}),
    "a close tag in a value": (
        block(parameter("s", "a </parameter> b")),
        {"s": "a </parameter> b"},
    ),
    "a function in a value": (
        block(parameter("s", "<function=g><parameter=x>1</parameter></function>")),
        {"s": "<function=g><parameter=x>1</parameter></function>"},
    ),
    "indentation": (block(parameter("s", "    if x:\n\n\ty")), {"s": "    if x:\n\n\ty"}),
    "no wrapper": (function(parameter("s", "x")), {"s": "x"}),
    "only the wrapper's end": (function(parameter("s", "x")) + "</tool_call>", {"s": "x"}),
}


@pytest.mark.parametrize(("text", "arguments"), BUG_31.values(), ids=BUG_31)
def test_bug_31_values_are_kept_whole(text: str, arguments: dict[str, object]) -> None:
    found = assert_same_in_pieces(FORMAT, text, TOOLS)
    assert found.calls == [("f", arguments)]
    assert found.rest.strip() == ""


def test_bug_31_two_functions_in_a_wrapper_are_two_calls() -> None:
    one, two = ("<function=f><parameter=i>1</parameter></function>".replace("1", i) for i in "12")
    text = f"<tool_call>{one}{two}</tool_call>"
    found = assert_same_in_pieces(FORMAT, text, TOOLS)
    assert found.calls == [("f", {"i": 1}), ("f", {"i": 2})]


def test_bug_21_the_block_of_a_call_inside_reasoning_is_one_call() -> None:
    text = block(parameter("filePath", "docs/probe.txt"), name="read") + "\n</think>"
    found = assert_same_in_pieces(FORMAT, text, TOOLS)
    assert found.calls == [("read", {"filePath": "docs/probe.txt"})]
    assert found.rest == "\n</think>"


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>\n<function=f>\n<parameter=s>\nabc",
        "<tool_call>\n<function=f>\n<parameter=s>\nabc\n</parameter>\n</func",
        "<tool_call>\n<function=f>\n<parameter=i>\n1\n</parameter>\n",
        "<tool_call>\n<function=f>\n<para",
        "<tool_call>\n<function=f",
        "<tool_call>\n<func",
        "<tool_call>",
        "<function=f>\n",
        "<function=",
    ],
)
def test_bug_33_a_call_that_the_end_cuts_is_incomplete_and_keeps_its_text(text: str) -> None:
    found = assert_same_in_pieces(FORMAT, text, TOOLS)
    assert [(error.raw, error.incomplete) for error in found.errors] == [(text, True)]
    assert found.calls == []


@pytest.mark.parametrize(
    ("text", "raw"),
    [
        ("<tool_call> before the JSON. Done.", "<tool_call> "),
        ("<tool_call><b>", "<tool_call>"),
        ("<function=unknown>", "<function="),
        ("<function=ff>", "<function=f"),
        ("<tool_call><function=\n", "<tool_call><function="),
    ],
)
def test_bug_23_a_tag_that_is_prose_gives_the_text_back_at_once(text: str, raw: str) -> None:
    found = assert_same_in_pieces(FORMAT, text, TOOLS)
    assert [(error.raw, error.prose) for error in found.errors] == [(raw, True)]
    parser = FORMAT.block(TOOLS)
    assert [type(event) for event in parser.feed(text)] == [CallFailed]
    assert parser.rest == text[len(raw) :]


def test_without_a_wrapper_only_tools_that_were_offered_are_called() -> None:
    text = function(parameter("s", "x"))
    assert read_block(FORMAT, [text], TOOLS).calls == [("f", {"s": "x"})]
    assert read_block(FORMAT, [text], ()).calls == []


@pytest.mark.parametrize("inside", ["", parameter("s", "x")])
def test_what_follows_a_function_without_a_wrapper_is_text(inside: str) -> None:
    found = assert_same_in_pieces(FORMAT, f"<function=f>{inside}</function>\n Done", TOOLS)
    assert len(found.calls) == 1
    assert found.rest == "\n Done"


def test_a_broken_function_leaves_the_good_one_beside_it() -> None:
    text = f"<tool_call>\n<function=f>\nx</function>\n{function(name='g')}</tool_call>"
    found = assert_same_in_pieces(FORMAT, text, TOOLS)
    assert found.calls == [("g", {})]
    assert [error.raw for error in found.errors] == ["<tool_call>\n<function=f>\nx</function>\n"]


def test_a_broken_function_without_a_wrapper_ends_with_its_tag() -> None:
    found = assert_same_in_pieces(FORMAT, "<function=f>x <b></function> y", TOOLS)
    assert [error.raw for error in found.errors] == ["<function=f>x <b></function>"]
    assert found.rest == " y"


def test_the_next_wrapper_ends_a_function_that_nothing_closed() -> None:
    text = "<tool_call><function=f><parameter=s>a</parameter></tool_call>\n"
    found = assert_same_in_pieces(FORMAT, text + "<tool_call>", TOOLS)
    assert found.calls == [("f", {"s": "a"})]
    assert found.rest == "<tool_call>"


def test_text_after_a_function_without_the_wrapper_end_is_text() -> None:
    text = f"<tool_call>{function(parameter('s', 'a'))}"
    found = assert_same_in_pieces(FORMAT, text + "\nDone.", TOOLS)
    assert found.calls == [("f", {"s": "a"})]
    assert found.rest == "\nDone."


def test_strings_come_as_they_are_written_and_other_values_when_they_are_complete() -> None:
    parser = FORMAT.block(TOOLS)
    assert parser.feed("<tool_call>\n<function=f") == []
    assert parser.feed(">") == [CallStarted(0, "f")]
    assert parser.feed("\n<parameter=s>\nHel") == [ArgumentsDelta(0, '{"s": "Hel')]
    assert parser.feed('"o\n') == [ArgumentsDelta(0, '\\"o')]
    assert parser.feed("</para") == []
    assert parser.feed("meter>\n<parameter=i>\n12") == [ArgumentsDelta(0, '"')]
    assert parser.feed("3\n</parameter>\n</function>") == []
    assert parser.feed("\n</tool_call>")[0] == ArgumentsDelta(0, ', "i": 123}')


@pytest.mark.parametrize("tool", [None, "g"])
def test_a_seeded_opening_goes_on_to_be_a_call(tool: str | None) -> None:
    opening = FORMAT.opening(tool)
    assert opening.startswith(FORMAT.opens[0])
    more = ("g>\n" if tool is None else "") + parameter("i", "1") + "\n</function>\n</tool_call>"
    assert read_block(FORMAT, [opening, more], TOOLS).calls == [("g", {"i": 1})]


PIECES = st.lists(
    st.sampled_from(
        ["<tool_call>", "</tool_call>", "<function=f>", "<function=", "</function>", "f>", "zoo>",
         "<parameter=s>", "<parameter=i>", "<parameter=", "</parameter>", "</param", "</", "<", ">",
         "\n", " ", "12", "abc", '{"a": 1}', '"', "'", "\\", "é", "😀", "1e999", "s", "f"]
    )
    | st.text(max_size=3),
    max_size=16,
)  # fmt: skip


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    st.sampled_from(["<tool_call>", "<function=", "<tool_call>\n<function=f>\n<parameter=s>\n"]),
    PIECES,
)
def test_no_text_raises_or_is_lost_and_no_cut_matters(opening: str, pieces: list[str]) -> None:
    text = opening + "".join(pieces)
    whole = read_block(FORMAT, [text], TOOLS)
    assert read_block(FORMAT, [opening, *pieces], TOOLS) == whole
    assert read_block(FORMAT, text, TOOLS) == whole


@settings(max_examples=100, deadline=None)
@given(st.text(), st.integers(1, 9))
def test_any_string_without_tags_is_read_exactly(value: str, size: int) -> None:
    text = block(parameter("s", value))
    found = read_block(FORMAT, [text[i : i + size] for i in range(0, len(text), size)], TOOLS)
    assert found.calls == [("f", {"s": value})]
