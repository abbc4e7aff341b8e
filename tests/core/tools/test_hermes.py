"""The Hermes format: JSON objects in `<tool_call>`, cut in every way."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phyla.testing.blocks import assert_same_in_pieces, read_block
from phyla.tools import ArgumentsDelta, CallFailed, CallStarted, HermesFormat

# There are many texts: three times as many are tried as elsewhere, and more in a thorough run.
EXAMPLES = 3 * settings().max_examples
FORMAT = HermesFormat()


def block(*objects: str) -> str:
    return "<tool_call>\n" + "\n".join(objects) + "\n</tool_call>"


# What is called, from what the model says; the fact sheet of Qwen3 lists these.
CALLS = {
    "plain": (block('{"name": "add", "arguments": {"a": 2, "b": 3}}'), [("add", {"a": 2, "b": 3})]),
    "nested": (
        block('{"name":"p","arguments":{"t":{"l":[{"to":"Oslo"},[]]}}}'),
        [("p", {"t": {"l": [{"to": "Oslo"}, []]}})],
    ),
    "a close tag in a string": (
        block(r'{"name":"w","arguments":{"b":"\"hi\"\n </tool_call> ok"}}'),
        [("w", {"b": '"hi"\n </tool_call> ok'})],
    ),
    "arguments as text": (block(r'{"name":"f","arguments":"{\"x\": 1}"}'), [("f", {"x": 1})]),
    "no arguments": (block('{"name": "now"}'), [("now", {})]),
    "empty arguments": (block('{"name": "now", "arguments": {}}'), [("now", {})]),
    "null arguments": (block('{"name": "now", "arguments": null}'), [("now", {})]),
    "parameters": (block('{"name":"f","parameters":{"x":1}}'), [("f", {"x": 1})]),
    "name last": (block('{"arguments":{"x":"é"},"name":"f"}'), [("f", {"x": "é"})]),
    "no close tag": ('<tool_call>{"name":"f","arguments":{"x":1}}', [("f", {"x": 1})]),
    "half a close tag": ('<tool_call>{"name":"f"}\n</tool_', [("f", {})]),
    "an extra brace": (block('{"name":"f","arguments":{"x":1}}}'), [("f", {"x": 1})]),
    "a missing brace": (block('{"name":"f","arguments":{"x":[1]'), [("f", {"x": [1]})]),
    "Python": (block("{'name':'f','arguments':{'x':None,'y':True}}"), [("f", {"x": None, "y": True})]),
    "a list": (block('[{"name":"f"}, {"name":"g"}]'), [("f", {}), ("g", {})]),
    "no spaces": ('<tool_call>{"name":"f"}</tool_call>', [("f", {})]),
    "half a pair": (block(r'{"name":"f","arguments":{"x":"\ud83d"}}'), [("f", {"x": "\ufffd"})]),
}  # fmt: skip


@pytest.mark.parametrize(("text", "calls"), CALLS.values(), ids=CALLS)
def test_a_call_is_read_however_it_is_cut(text: str, calls: list[object]) -> None:
    found = assert_same_in_pieces(FORMAT, text)
    assert found.calls == calls
    assert not found.errors
    assert found.rest == ""


def test_bug_32_a_bad_escape_is_kept_and_both_calls_of_a_block_are_read() -> None:
    text = block(r'{"name":"f","arguments":{"re":"\d+"}}', '{"name":"g","arguments":{}}')
    found = assert_same_in_pieces(FORMAT, text)
    assert found.calls == [("f", {"re": r"\d+"}), ("g", {})]
    assert any("backslash" in note for note in found.notes)


def test_bug_33_a_call_that_the_end_cuts_is_incomplete_and_keeps_its_text() -> None:
    text = '<tool_call>\n{"name": "f", "arguments": {"q": "abc'
    found = assert_same_in_pieces(FORMAT, text)
    assert found.calls == []
    assert found.json == ('{"q": "abc',)
    assert [(error.index, error.raw, error.incomplete) for error in found.errors] == [
        (0, text, True)
    ]


@pytest.mark.parametrize(
    ("text", "raw"),
    [
        ("<tool_call> before the JSON. Done.", "<tool_call> "),
        ("<tool_call>` tags", "<tool_call>"),
        ("<tool_call>{...}</tool_call>", "<tool_call>{"),
        ("<tool_call>[see below]", "<tool_call>["),
    ],
)
def test_bug_23_a_tag_that_is_prose_gives_the_text_back_at_once(text: str, raw: str) -> None:
    found = assert_same_in_pieces(FORMAT, text)
    assert [(error.raw, error.prose) for error in found.errors] == [(raw, True)]
    parser = FORMAT.block(())
    events = parser.feed(text)
    assert [type(event) for event in events] == [CallFailed]
    assert parser.rest == text[len(raw) :]


WRONG = {
    "no name": block('{"arguments": {"x": 1}}'),
    "another object": block('{"answer": 4}'),
    "a name that is no text": block('{"name": 5}'),
    "an empty name": block('{"name": ""}'),
    "arguments that are no object": block('{"name":"f","arguments":[1]}'),
    "arguments that are other text": block('{"name":"f","arguments":"x"}'),
    "a word": block('{"name":"f","arguments":{"x": oops, "y": "}"}}'),
    "nothing": "<tool_call>\n</tool_call>",
    "an empty list": "<tool_call>[]</tool_call>",
    "too deep": block('{"name":"f","arguments":{"x":' + "[" * 120 + "]" * 120 + "}}"),
}


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_what_is_no_call_is_an_error_with_all_its_text(text: str) -> None:
    found = read_block(FORMAT, [text + "\nbye"])
    assert [error.raw for error in found.errors] == [text]
    assert not found.calls
    assert found.rest == "\nbye"
    assert not any(error.incomplete or error.prose for error in found.errors)
    assert read_block(FORMAT, text + "\nbye") == found
    if len(text) < 100:
        assert_same_in_pieces(FORMAT, text)


def test_a_broken_call_leaves_the_good_ones_beside_it() -> None:
    text = block('{"name":"a"}', '{"name":"f","arguments":{x}}', '{"name":"b"}')
    found = assert_same_in_pieces(FORMAT, text)
    assert found.calls == [("a", {}), ("b", {})]
    assert [error.raw for error in found.errors] == ['{"name":"f","arguments":{x}}\n']


def test_a_string_that_was_not_closed_swallows_no_other_block() -> None:
    text = '<tool_call>{"name":"f","arguments":{"q":"a}}</tool_call>'
    after = '\n<tool_call>{"name":"g"}</tool_call>'
    found = assert_same_in_pieces(FORMAT, text + after)
    assert [error.raw for error in found.errors] == [text]
    assert found.rest == after


@pytest.mark.parametrize("after", ["\nI called it.", "\n<tool_call>{}", " </tool>"])
def test_a_block_without_its_close_tag_ends_where_text_follows(after: str) -> None:
    found = assert_same_in_pieces(FORMAT, '<tool_call>{"name":"f"}' + after)
    assert found.calls == [("f", {})]
    assert found.notes == ("</tool_call> is missing",)
    assert found.rest == after


def test_the_name_and_the_text_of_a_string_come_as_they_are_written() -> None:
    parser = FORMAT.block(())
    assert parser.feed('<tool_call>{"name": "f"') == [CallStarted(0, "f")]
    assert parser.feed(', "arguments": {"a": "Hel') == [ArgumentsDelta(0, '{"a": "Hel')]
    assert parser.feed("lo\\") == [ArgumentsDelta(0, "lo")]
    assert parser.feed("n") == [ArgumentsDelta(0, "\\n")]
    assert parser.feed('", "b": 1') == [ArgumentsDelta(0, '", "b": ')]
    assert parser.feed("2}}") == [ArgumentsDelta(0, "12}")]


@pytest.mark.parametrize("tool", [None, "f", 'odd "name"'])
def test_a_seeded_opening_goes_on_to_be_a_call(tool: str | None) -> None:
    opening = FORMAT.opening(tool)
    assert opening.startswith(FORMAT.opens[0])
    more = 'f", "arguments": {"x": 1}}' if tool is None else ' {"x": 1}}'
    found = read_block(FORMAT, [opening, more + "\n</tool_call>"])
    assert found.calls == [(tool or "f", {"x": 1})]


PIECES = st.lists(
    st.sampled_from(
        ['{"name": "f"', '"name"', ', "arguments": ', '{"a": ', '"x"', "'y'", "\\", "\\d", '"', "'",
         "{", "}", "[", "]", ",", ":", " ", "\n", "1e999", "12", "None", "tru", "</tool_call>",
         "<tool_call>", "</tool", "<", "é", "😀", "\ud7ff", "\\ud83d"]
    )
    | st.text(max_size=3),
    max_size=16,
)  # fmt: skip


@settings(max_examples=EXAMPLES, deadline=None)
@given(PIECES)
def test_no_text_raises_or_is_lost_and_no_cut_matters(pieces: list[str]) -> None:
    text = "<tool_call>" + "".join(pieces)
    whole = read_block(FORMAT, [text])
    assert read_block(FORMAT, ["<tool_call>", *pieces]) == whole
    assert read_block(FORMAT, text) == whole


ARGUMENTS = st.dictionaries(
    st.text(max_size=5),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=5,
    ),
    max_size=4,
)


@settings(max_examples=50, deadline=None)
@given(st.lists(ARGUMENTS, min_size=1, max_size=3), st.integers(1, 9))
def test_right_calls_are_read_exactly(calls: list[dict[str, object]], size: int) -> None:
    objects = [json.dumps({"name": "f", "arguments": arguments}) for arguments in calls]
    text = block(*objects)
    found = read_block(FORMAT, [text[i : i + size] for i in range(0, len(text), size)])
    assert found.calls == [("f", arguments) for arguments in calls]
    assert found.notes == ()
