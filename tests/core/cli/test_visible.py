"""What files say does not steer a terminal."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phyla.cli.failures import line
from phyla.cli.tables import print_fields, print_table
from phyla.cli.visible import visible
from phyla.errors import CheckpointError


@given(st.text())
def test_what_is_shown_has_nothing_unseen_in_it(text):
    shown = visible(text)
    assert visible(shown) == shown
    shown.encode()
    assert not {unicodedata.category(each) for each in shown} & {"Cc", "Cf", "Cs", "Zl", "Zp"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<|im_end|>", "<|im_end|>"),
        ("Grüße, 世界 😀", "Grüße, 世界 😀"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\nb\r\t", "a\\nb\\r\\t"),
        ("\x9b31m", "\\x9b31m"),
        ("\u202eevil", "\\u202eevil"),
        ("\ud800", "\\ud800"),
    ],
)
def test_characters_that_steer_a_terminal_are_written_out(text, shown):
    assert visible(text) == shown


def test_tables_and_errors_show_them_so(capsys):
    print_fields([("name", "a\x1b]0;title\x07")])
    print_table(["one"], [["b\x1b[31m"]])
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "a\\x1b]0;title\\x07" in out
    assert "b\\x1b[31m" in out
    assert line(CheckpointError("tensor '\x1b[1mw'")) == "tensor '\\x1b[1mw'"
