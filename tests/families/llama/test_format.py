"""Llama 3's calls, JSON objects with or without `<|python_tag|>`, cut in every way."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phyla.messages import Tool
from phyla.testing.blocks import assert_same_in_pieces, read_block
from phyla.tools import CallFailed
from phyla_families.llama.format import LlamaJsonFormat

# There are many texts: three times as many are tried as elsewhere, and more in a thorough run.
EXAMPLES = 3 * settings().max_examples
FORMAT = LlamaJsonFormat()
TOOLS = [Tool(name="f"), Tool(name="g")]
TAG = "<|python_tag|>"

CALLS = {
    "plain": ('{"name": "f", "parameters": {"a": 1}}', [("f", {"a": 1})]),
    "with its type": ('{"type": "function", "name": "f", "parameters": {}}', [("f", {})]),
    "arguments": ('{"name": "f", "arguments": {"a": 1}}', [("f", {"a": 1})]),
    "no parameters": ('{"name": "f"}', [("f", {})]),
    "parameters first": ('{"parameters": {"a": [1]}, "name": "f"}', [("f", {"a": [1]})]),
    "parameters as text": (r'{"name": "f", "parameters": "{\"a\": 1}"}', [("f", {"a": 1})]),
    "with the tag": (TAG + '{"name": "f", "parameters": {"a": "}"}}', [("f", {"a": "}"})]),
    "any name with the tag": (TAG + '{"name": "other"}', [("other", {})]),
    "two with a semicolon": ('{"name": "f"}; {"name": "g"}', [("f", {}), ("g", {})]),
    "two with a newline": ('{"name": "f"}\n{"name": "g"}', [("f", {}), ("g", {})]),
    "two with tags": (f'{TAG}{{"name": "f"}}{TAG}{{"name": "g"}}', [("f", {}), ("g", {})]),
    "an extra brace": ('{"name": "f", "parameters": {}}}', [("f", {})]),
    "a bad escape": (r'{"name": "f", "parameters": {"re": "\d"}}', [("f", {"re": r"\d"})]),
    "Python": ("{'name': 'f', 'parameters': {'a': None}}", [("f", {"a": None})]),
}


@pytest.mark.parametrize(("text", "calls"), CALLS.values(), ids=CALLS)
def test_a_call_is_read_however_it_is_cut(text: str, calls: list[object]) -> None:
    found = assert_same_in_pieces(FORMAT, text, TOOLS)
    assert found.calls == calls
    assert not found.errors
    assert found.rest == ""


@pytest.mark.parametrize(
    "text",
    [
        '{"answer": 4}',
        '{"name": "Ann", "age": 4}',
        '{"name": "f", "age": oops}',
        "{x: 1}",
        "{}",
        "{ braces }",
        '{"type": "object"}',
        TAG + "print(1)",
    ],
)
def test_bug_23_an_object_that_is_no_call_is_text(text: str) -> None:
    found = assert_same_in_pieces(FORMAT, text, TOOLS)
    assert found.calls == []
    if not found.names:
        assert [error.prose for error in found.errors] == [True]


def test_without_tools_no_object_is_a_call() -> None:
    parser = FORMAT.block(())
    assert [type(event) for event in parser.feed('{"name": "f", ')] == [CallFailed]
    assert parser.rest == ", "


@pytest.mark.parametrize("after", [" Done.", '; {"answer": 4}', '{"name": "other"}', "; x"])
def test_what_follows_a_call_and_is_none_is_text(after: str) -> None:
    found = assert_same_in_pieces(FORMAT, '{"name": "f"}' + after, TOOLS)
    assert found.calls == [("f", {})]
    assert not found.errors
    assert found.rest == after


def test_bug_33_a_call_that_the_end_cuts_is_incomplete_and_keeps_its_text() -> None:
    text = '{"name": "f", "parameters": {"a": "x'
    found = assert_same_in_pieces(FORMAT, text, TOOLS)
    assert [(error.raw, error.incomplete) for error in found.errors] == [(text, True)]


def test_a_call_that_cannot_be_read_is_an_error_up_to_its_end() -> None:
    text = '{"name": "f", "parameters": {oops}}'
    found = assert_same_in_pieces(FORMAT, text + " x", TOOLS)
    assert [error.raw for error in found.errors] == [text]
    assert found.rest == " x"


@pytest.mark.parametrize("tool", [None, "f"])
def test_a_seeded_opening_goes_on_to_be_a_call(tool: str | None) -> None:
    more = 'f", "parameters": {"x": 1}}' if tool is None else ' {"x": 1}}'
    assert read_block(FORMAT, [FORMAT.opening(tool), more], TOOLS).calls == [("f", {"x": 1})]


PIECES = st.lists(
    st.sampled_from(
        ['{"name": "f"', '{"name": "zoo"', ', "parameters": ', '{"a": ', '"x"', "\\", '"', "'", "{",
         "}", "[", "]", ",", ";", " ", "\n", "12", TAG, "<|python", '"type": "function", ', "é"]
    )
    | st.text(max_size=3),
    max_size=16,
)  # fmt: skip


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.sampled_from(["{", TAG, '{"name": "f"']), PIECES)
def test_no_text_raises_or_is_lost_and_no_cut_matters(opening: str, pieces: list[str]) -> None:
    text = opening + "".join(pieces)
    whole = read_block(FORMAT, [text], TOOLS)
    assert read_block(FORMAT, [opening, *pieces], TOOLS) == whole
    assert read_block(FORMAT, text, TOOLS) == whole
