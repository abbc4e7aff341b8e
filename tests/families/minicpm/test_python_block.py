"""The fenced Python that MiniCPM 3 and 4 write their tool calls in."""

from __future__ import annotations

import pytest

from phyla.testing.blocks import assert_same_in_pieces, read_block
from phyla_families.minicpm.python_block import PYTHON_BLOCK

START, END = "<|tool_call_start|>", "<|tool_call_end|>"
EXAMPLES = [
    ('f(city="Paris", days=3)', [("f", {"city": "Paris", "days": 3})]),
    ("f(a=1)\ng()", [("f", {"a": 1}), ("g", {})]),
    (
        'f(l=[1, {"k": None}], s=\'a, "b" ]\')',
        [("f", {"l": [1, {"k": None}], "s": 'a, "b" ]'})],
    ),
    ("f(flag=true, z=null, t=True)", [("f", {"flag": True, "z": None, "t": True})]),
    ('f(text="line1\\nline2")', [("f", {"text": "line1\nline2"})]),
    ('f(text="line1\nline2")', [("f", {"text": "line1\nline2"})]),
    ("f(\n  a=1,\n  b=[\n    2,\n  ],\n)", [("f", {"a": 1, "b": [2]})]),
    ('f(a="x",b=2)\n', [("f", {"a": "x", "b": 2})]),
    ("# first\nf()\n\n# then\ng()", [("f", {}), ("g", {})]),
    ("f(); g()", [("f", {}), ("g", {})]),
    ("[f(), g()]", [("f", {}), ("g", {})]),
    ('f(code="```\\nx\\n```")', [("f", {"code": "```\nx\n```"})]),
    ("a.b(import=1)", [("a.b", {"import": 1})]),
]


@pytest.mark.parametrize(("body", "calls"), EXAMPLES)
def test_calls_are_read_alike_in_all_pieces(body, calls):
    found = assert_same_in_pieces(PYTHON_BLOCK, f"{START}\n```python\n{body}\n```\n{END}\nok")
    assert found.calls == calls
    assert not found.errors
    assert not found.notes
    assert found.rest == "\nok"


# Without a fence a line that begins with # may as well be a heading.
@pytest.mark.parametrize(
    ("body", "calls"), [example for example in EXAMPLES if not example[0].startswith("#")]
)
def test_calls_are_read_without_a_fence(body, calls):
    assert read_block(PYTHON_BLOCK, [f"{START}\n{body}\n{END}"]).calls == calls


def test_only_the_broken_line_is_an_error():
    text = f"{START}\n```python\nf(a=oops\ng(b=1)\nx = 3\n```\n{END}"
    found = assert_same_in_pieces(PYTHON_BLOCK, text)
    assert found.calls == [("g", {"b": 1})]
    assert len(found.errors) == 2


@pytest.mark.parametrize("body", ['f(city="Par', "f(", "f"])
def test_a_call_that_is_cut_off_is_incomplete(body):
    found = assert_same_in_pieces(PYTHON_BLOCK, f"{START}\n```python\n{body}")
    assert not found.calls
    assert [error.incomplete for error in found.errors] == [True]


def test_a_block_without_its_end_is_accepted_with_a_note():
    found = assert_same_in_pieces(PYTHON_BLOCK, f"{START}\n```python\nf(a=1)\n```")
    assert found.calls == [("f", {"a": 1})]
    assert found.notes == ("the closing marker was missing",)


@pytest.mark.parametrize("body", ['f(city="P"]")', "f(a=1])", "]", "]]\n]"])
def test_a_stray_bracket_ends_no_fence_and_stops_no_reading(body):
    text = f"{START}\n```python\n{body}\ng(b=1)\n```\n{END}"
    found = assert_same_in_pieces(PYTHON_BLOCK, text)
    assert found.calls == [("g", {"b": 1})]
    assert found.errors
