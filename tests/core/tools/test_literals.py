"""Reading Python and JSON literals from text."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phyla.tools.cursor import Cursor
from phyla.tools.literals import (
    CutOff,
    Incomplete,
    Literal,
    LiteralReader,
    Malformed,
    Mismatch,
    read_literal,
)

EXAMPLES = settings().max_examples

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
noise = st.text(alphabet="'\"\\[](){},:=<|> abnrux0189.+-eE\nTrueNone", max_size=60)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("'a'", "a"),
        ('"a"', "a"),
        ("'a\nb'", "a\nb"),
        (r"'it\'s'", "it's"),
        (r"'tab\there'", "tab\there"),
        (r"'C:\\'", "C:\\"),
        (r"'\x41\u00e9\U0001F600\101'", "Aé😀A"),
        (r"'\ud83d\ude00'", "😀"),
        (r"'\N{BULLET}'", "•"),
        (r"r'\d+'", r"\d+"),
        ("'''it's \"fine\"'''", 'it\'s "fine"'),
        ('"""a\nb"""', "a\nb"),
        ("''", ""),
        ("12", 12),
        ("-74.0046539", -74.0046539),
        ("+5", 5),
        ("1_000", 1000),
        ("0x1F", 31),
        (".5", 0.5),
        ("1e-5", 1e-5),
        ("True", True),
        ("false", False),
        ("None", None),
        ("null", None),
        ("(800, 600)", [800, 600]),
        ("(1,)", [1]),
        ("(1)", 1),
        ("{1, 2}", [1, 2]),
        ("[1, 'a', {'k': None}, ]", [1, "a", {"k": None}]),
        ('{\'a\': true, "b": {"c": [1.5]}}', {"a": True, "b": {"c": [1.5]}}),
        ("  7", 7),
    ],
)
def test_literals_are_read(text, value):
    assert read_literal(text) == Literal(value, len(text))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("['it's', 1]", ["it's", 1]),
        ("['it's fine', he said', 2]", ["it's fine', he said", 2]),
        (r"['C:\', 'x']", ["C:\\", "x"]),
        (r"'C:\'", "C:\\"),
        (r"'\d'", r"\d"),
        ("007", "007"),
        ("{mode: 'x'}", {"mode": "x"}),
        ("{1: 2}", {"1": 2}),
        (r"'\ud83d'", "\ufffd"),
    ],
)
def test_slips_are_repaired_and_noted(text, value):
    literal = read_literal(text)
    assert isinstance(literal, Literal)
    assert literal.value == value
    assert literal.notes


@pytest.mark.parametrize(
    "text",
    ["1e999", "nan", "foo", "-", "[,]", "[1 2]", "{2: 1 3}", "[" * 500, "9" * 5000, "{[1]: 2}"],
)
def test_what_is_no_literal_is_malformed(text):
    assert isinstance(read_literal(text), Malformed)


@pytest.mark.parametrize("text", ["", "'a", "[1,", "{'a':", "'''a''", "[1"])
def test_a_beginning_is_incomplete(text):
    assert read_literal(text) == Incomplete()


@pytest.mark.parametrize("text", ["12", "True", "1e", "-"])
def test_a_number_or_word_may_go_on(text):
    assert read_literal(text, whole=False) == Incomplete()


def test_the_text_behind_a_literal_is_left():
    assert read_literal("x = 'a', 2", 4) == Literal("a", 7)


@settings(max_examples=EXAMPLES, deadline=None)
@given(values)
def test_python_s_own_spelling_comes_back(value):
    assert read_literal(repr(value)) == Literal(value, len(repr(value)))


@settings(max_examples=EXAMPLES, deadline=None)
@given(values, st.booleans())
def test_json_s_spelling_comes_back(value, ascii_only):
    text = json.dumps(value, ensure_ascii=ascii_only)
    literal = read_literal(text)
    assert isinstance(literal, Literal)
    assert literal.value == value
    assert not literal.notes


@settings(max_examples=EXAMPLES, deadline=None)
@given(noise)
def test_any_text_is_read_or_refused(text):
    found = read_literal(text)
    if isinstance(found, Literal):
        json.dumps(found.value, allow_nan=False)
        assert 0 < found.end <= len(text)


@settings(max_examples=EXAMPLES, deadline=None)
@given(noise)
def test_literals_are_read_alike_in_pieces(text):
    cursor = Cursor()
    reading = LiteralReader(cursor).value()
    found: Literal | Incomplete | Malformed | None = None
    for piece in [*text, None]:
        if piece is None:
            cursor.end()
        else:
            cursor.feed(piece)
        if found is None:
            try:
                next(reading)
            except StopIteration as stop:
                found = Literal(stop.value, cursor.offset)
            except CutOff:
                found = Incomplete()
            except Mismatch as mismatch:
                found = Malformed(cursor.offset, mismatch.reason)
    whole = read_literal(text) if not text[:1].isspace() else found
    if isinstance(whole, Literal):
        whole = Literal(whole.value, whole.end)
    assert found == whole
