"""Nemotron Nano v2's list of calls in `<TOOLCALL>`, and Nemotron 3's tags, cut in every way."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phyla.messages import Tool
from phyla.testing.blocks import assert_same_in_pieces, read_block
from phyla.tools import FunctionXmlFormat
from phyla_families.nemotron_h.format import ToolCallListFormat

# There are many texts: three times as many are tried as elsewhere, and more in a thorough run.
EXAMPLES = 3 * settings().max_examples
FORMAT = ToolCallListFormat()

# What is called, from what the model says; the fact sheet lists these.
CALLS = {
    "one": (
        '<TOOLCALL>[{"name": "add", "arguments": {"a": 1, "b": 2}}]</TOOLCALL>',
        [("add", {"a": 1, "b": 2})],
    ),
    "two": (
        '<TOOLCALL>[{"name":"a","arguments":{}}, {"name":"b","arguments":{"x":[{"y":null}]}}]</TOOLCALL>',
        [("a", {}), ("b", {"x": [{"y": None}]})],
    ),
    "brackets and tag in a string": (
        r'<TOOLCALL>[{"name":"w","arguments":{"b":"1\n\"q\" <i>] </TOOLCALL>"}}]</TOOLCALL>',
        [("w", {"b": '1\n"q" <i>] </TOOLCALL>'})],
    ),
    "arguments as text": (
        r'<TOOLCALL>[{"name":"f","arguments":"{\"a\": 1}"}]</TOOLCALL>',
        [("f", {"a": 1})],
    ),
    "no list": ('<TOOLCALL>{"name":"f"}</TOOLCALL>', [("f", {})]),
    "no close tag": ('<TOOLCALL>[{"name":"f"}]', [("f", {})]),
    "no end of the list": ('<TOOLCALL>[{"name":"f"}</TOOLCALL>', [("f", {})]),
    "doubled braces": ('<TOOLCALL>[{{"name":"f","arguments":{"a":1}}}]</TOOLCALL>', [("f", {"a": 1})]),
    "a comma too many": ('<TOOLCALL>[{"name":"f"},]</TOOLCALL>', [("f", {})]),
    "blanks": ('<TOOLCALL>\n[ {"name":"f"} , {"name":"g"} ]\n</TOOLCALL>', [("f", {}), ("g", {})]),
    "no commas": ('<TOOLCALL>[{"name":"f"}\n{"name":"g"}]</TOOLCALL>', [("f", {}), ("g", {})]),
    "Python": ("<TOOLCALL>[{'name':'f','arguments':{'a':None}}]</TOOLCALL>", [("f", {"a": None})]),
    "no arguments": ('<TOOLCALL>[{"name": "now", "arguments": {}}]</TOOLCALL>', [("now", {})]),
}  # fmt: skip


@pytest.mark.parametrize(("text", "calls"), CALLS.values(), ids=CALLS)
def test_a_list_of_calls_is_read_however_it_is_cut(text: str, calls: list[object]) -> None:
    found = assert_same_in_pieces(FORMAT, text)
    assert found.calls == calls
    assert not found.errors
    assert found.rest == ""


def test_bug_33_of_a_list_that_the_end_cuts_the_complete_calls_are_kept() -> None:
    found = assert_same_in_pieces(
        FORMAT, '<TOOLCALL>[{"name": "a", "arguments": {"x": 1}}, {"name": "b", "arg'
    )
    assert found.calls == [("a", {"x": 1})]
    assert [(error.raw, error.incomplete) for error in found.errors] == [
        ('{"name": "b", "arg', True)
    ]


@pytest.mark.parametrize("arguments", ['"no JSON"', "[1]", "oops"])
def test_one_bad_call_leaves_the_others(arguments: str) -> None:
    bad = f'<TOOLCALL>[{{"name":"a","arguments":{arguments}}}, '
    found = assert_same_in_pieces(FORMAT, bad + '{"name":"b"}]</TOOLCALL>')
    assert found.calls == [("b", {})]
    assert [error.raw for error in found.errors] == [bad]


def test_bug_23_a_tag_that_is_prose_gives_the_text_back_at_once() -> None:
    parser = FORMAT.block(())
    assert len(parser.feed("<TOOLCALL> marks a call")) == 1
    assert parser.rest == "marks a call"


@pytest.mark.parametrize("tool", [None, "f"])
def test_a_seeded_opening_goes_on_to_be_a_call(tool: str | None) -> None:
    more = 'f", "arguments": {"x": 1}}]' if tool is None else ' {"x": 1}}]'
    found = read_block(FORMAT, [FORMAT.opening(tool), more, "</TOOLCALL>"])
    assert found.calls == [("f", {"x": 1})]


NEMOTRON_3 = {
    "indented code": (
        "<tool_call>\n<function=f>\n<parameter=c>\ndef f():\n    1\n\nf()\n</parameter>\n"
        "</function>\n</tool_call>\n",
        [("f", {"c": "def f():\n    1\n\nf()"})],
    ),
    "an object": (
        '<tool_call>\n<function=f>\n<parameter=o>\n{"u": [1]}\n</parameter>\n</function>\n</tool_call>\n',
        [("f", {"o": {"u": [1]}})],
    ),
    "JSON in a string": (
        '<tool_call>\n<function=f>\n<parameter=c>\n{"u": [1]}\n</parameter>\n</function>\n</tool_call>\n',
        [("f", {"c": '{"u": [1]}'})],
    ),
    "a JSON body": (
        '<tool_call>\n<function=f>{"a": 1}</function>\n</tool_call>\n',
        [("f", {"a": 1})],
    ),
}


@pytest.mark.parametrize(("text", "calls"), NEMOTRON_3.values(), ids=NEMOTRON_3)
def test_nemotron_3_writes_function_tags(text: str, calls: list[object]) -> None:
    properties = {"c": {"type": "string"}, "o": {"type": "object"}}
    tools = [Tool(name="f", parameters={"properties": properties})]
    found = assert_same_in_pieces(FunctionXmlFormat(), text, tools)
    assert found.calls == calls
    assert found.rest == "\n"


PIECES = st.lists(
    st.sampled_from(
        ['[{"name": "f"', '{"name": "g"', ', "arguments": ', '{"a": ', '"x"', "\\", '"', "'", "{",
         "}", "}]", "[", "]", ",", " ", "\n", "12", "</TOOLCALL>", "<TOOLCALL>", "</TOOL", "<", "é"]
    )
    | st.text(max_size=3),
    max_size=16,
)  # fmt: skip


@settings(max_examples=EXAMPLES, deadline=None)
@given(PIECES)
def test_no_text_raises_or_is_lost_and_no_cut_matters(pieces: list[str]) -> None:
    text = "<TOOLCALL>" + "".join(pieces)
    whole = read_block(FORMAT, [text])
    assert read_block(FORMAT, ["<TOOLCALL>", *pieces]) == whole
    assert read_block(FORMAT, text) == whole
