"""The ways to cut a text into pieces, for tests that no cut may matter.

With the environment variable `PHYLA_EVERY_CUT` set, cuts into three are complete; otherwise all
cuts into two and an even choice of those into three are tried.
"""

from __future__ import annotations

import os
from itertools import combinations, islice
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

EVERY_CUT = "PHYLA_EVERY_CUT"

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
    step = 1 if os.environ.get(EVERY_CUT) else max(1, pairs // _MOST_PAIRS)
    yield from islice(combinations(all_places, 2), 0, None, step)
