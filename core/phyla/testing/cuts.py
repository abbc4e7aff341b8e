"""The ways to cut a text into pieces, for tests that no cut may matter.

All cuts into two are tried; of those into three an ordinary run takes an even choice.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, TypeVar

from phyla.testing.thorough import some

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# How many cuts into three are tried of one text otherwise.
_MOST_PAIRS = 100

_Place = TypeVar("_Place")


def cuts(text: str) -> Iterator[tuple[str, ...]]:
    """A text's characters one by one, and its two-way and three-way cuts."""
    yield tuple(text)
    for first, second in places(range(1, len(text))):
        yield text[:first], text[first:second], text[second:]


def places(all_places: Sequence[_Place]) -> Iterator[tuple[_Place, _Place]]:
    """Pairs of places to cut at: each alone, and pairs of two."""
    yield from ((place, place) for place in all_places)
    pairs = len(all_places) * (len(all_places) - 1) // 2
    yield from some(combinations(all_places, 2), count=pairs, most=_MOST_PAIRS)
