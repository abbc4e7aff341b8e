"""Numbers as people read them, and as they write them."""

from __future__ import annotations

import pytest
import typer

from phyla.cli.shell import read_bits
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


@pytest.mark.parametrize(
    ("text", "bits"), [(None, None), ("8", 8), ("8,4", (8, 4)), (" 8, 4 ", (8, 4))]
)
def test_bits_of_keys_and_values_are_one_number_or_two(
    text: str | None, bits: int | tuple[int, int] | None
) -> None:
    assert read_bits(text) == bits


@pytest.mark.parametrize("text", ["", "foo", "8,", "8,4,2", "7", "0", "8,7", "-8"])
def test_other_bits_are_a_usage_error(text: str) -> None:
    with pytest.raises(typer.BadParameter) as caught:
        read_bits(text)
    assert caught.value.param_hint == "--kv-bits"
