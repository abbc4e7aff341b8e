"""JSON as models write it is read, in pieces, and written out as JSON should be."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phyla.tools.calls import CallError
from phyla.tools.cursor import Cursor
from phyla.tools.json_text import MAX_DEPTH, JsonReader, parse, parse_strict

if TYPE_CHECKING:
    from collections.abc import Iterable

# There are many texts: three times as many are tried as elsewhere, and more in a thorough run.
EXAMPLES = 3 * settings().max_examples


def read(pieces: Iterable[str]) -> tuple[str, str, list[str]]:
    """What is written, how it ended, and the notes."""
    cursor = Cursor()
    written: list[str] = []
    notes: list[str] = []
    reading = JsonReader(cursor, notes.append).value(written.append)
    try:
        for piece in pieces:
            cursor.feed(piece)
            next(reading)
        cursor.end()
        next(reading)
    except StopIteration:
        return "".join(written), "read", notes
    except CallError as error:
        return "".join(written), "cut" if error.cut else "error", notes
    raise AssertionError("an ended text leaves nothing to wait for")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r'{"re": "\d+"}', {"re": r"\d+"}),
        (r'{"p": "C:\Users\x"}', {"p": r"C:\Users\x"}),
        (r'"\uZZ"', r"\uZZ"),
        (r'"it\'s"', "it's"),
        ("{'k': 'it\\'s \"x\"'}", {"k": 'it\'s "x"'}),
        ("{'a': None, 'b': True, 'c': False}", {"a": None, "b": True, "c": False}),
        ("(1, 2,)", [1, 2]),
        ('{"a": [1, 2,],}', {"a": [1, 2]}),
        ('"a\nb\tc"', "a\nb\tc"),
        ("[+1, 1., .5, -.5e1]", [1, 1.0, 0.5, -5.0]),
        (
            "[1e999, NaN, -Infinity, 007, 2026-01-15]",
            ["1e999", "NaN", "-Infinity", "007", "2026-01-15"],
        ),
        ("[" + "9" * 5000 + "]", ["9" * 5000]),
        (r'"\ud83d\ude00"', "😀"),
        (r'"\ud83d"', "\ufffd"),
        (r'"\ud83d\ud83d\ude00\ude00"', "\ufffd😀\ufffd"),
    ],
)
def test_what_is_wrong_without_doubt_is_repaired(text: str, value: object) -> None:
    found, notes = parse(text)
    assert found == value
    assert notes or "ude00" in text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"a"}',
        '{"a": }',
        "[1 2]",
        '{"a": 1]',
        "hello",
        '{"a": oops}',
        "1 2",
        "{a: 1}",
        ",",
    ],
)
def test_what_cannot_be_repaired_is_an_error(text: str) -> None:
    with pytest.raises(CallError):
        parse(text)


def test_nesting_has_a_limit() -> None:
    deep = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert parse(deep)[0] == json.loads(deep)
    with pytest.raises(CallError, match="nested"):
        parse("[" * 100_000)


def test_the_strict_reader_repairs_nothing_but_control_characters() -> None:
    assert parse_strict('{"a": "x\ny"}') == {"a": "x\ny"}
    for text in ("{'a': 1}", "True", "1e999", "[1,]"):
        with pytest.raises(CallError):
            parse_strict(text)


def test_an_end_mark_closes_the_brackets_that_are_open() -> None:
    cursor = Cursor()
    cursor.feed('{"a": [1</end>')
    written: list[str] = []
    notes: list[str] = []
    reading = JsonReader(cursor, notes.append, end="</end>").value(written.append)
    with pytest.raises(StopIteration):
        next(reading)
    assert "".join(written) == '{"a": [1]}'
    assert cursor.unread == "</end>"
    assert notes


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)  # fmt: skip


@given(JSON, st.booleans())
def test_right_json_is_read_as_it_is(value: object, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    assert parse(text) == (value, ())
    assert parse_strict(text) == value


@given(JSON)
def test_pythons_own_spelling_of_json_is_read(value: object) -> None:
    text = repr(value)
    # Python escapes what JSON spells otherwise.
    if "\\x" not in text and "\\U" not in text and text[:1] in ("[", "{"):
        assert parse(text)[0] == value


NEAR_JSON = st.lists(
    st.sampled_from(
        ['"', "'", "\\", "\\u", "d83d", "\\ude00", "{", "}", "[", "]", ":", ",", " ", "\n", "1", "-",
         "e5", "true", "None", "a", "é", "😀", "\x01", '"a": ', "{'b': "]
    ),
    max_size=20,
)  # fmt: skip


@settings(max_examples=EXAMPLES, deadline=None)
@given(NEAR_JSON)
def test_pieces_give_what_the_whole_gives_and_what_is_written_is_json(parts: list[str]) -> None:
    text = "".join(parts)
    written, ended, notes = read([text])
    assert read(parts) == (written, ended, notes)
    assert read(text) == (written, ended, notes)
    if ended == "read":
        json.loads(written)
