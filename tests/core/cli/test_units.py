"""Numbers as people read them."""

from __future__ import annotations

import pytest

from phyla.cli.units import count_text, size_text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (46_080, "45.0 KiB"), (98_362_432, "93.8 MiB")],
)
def test_bytes_come_in_the_unit_that_fits(count, text):
    assert size_text(count) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(999, "999"), (35_136, "35.1 thousand"), (134_515_008, "134.5 million"), (8e9, "8.0 billion")],
)
def test_counts_come_with_a_word(count, text):
    assert count_text(count) == text
