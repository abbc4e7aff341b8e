"""Snapshots of one sequence: what they take up, and which of them are worth keeping."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

MOST = 16  # of one entry; more only where they are pinned
LATEST = 4  # of these, the latest are not thinned out: the next turn starts from one of them


class Snapshot(Protocol):
    """The state at one length of those layers that cannot be cut everywhere."""

    @property
    def length(self) -> int: ...
    @property
    def nbytes(self) -> int: ...


def total_bytes(snapshots: Iterable[Snapshot]) -> int:
    return sum(kept.nbytes for kept in snapshots)


def merged(*several: Iterable[Snapshot]) -> tuple[Snapshot, ...]:
    """One snapshot for each length, in order; of two, the first given."""
    by_length: dict[int, Snapshot] = {}
    for snapshots in several:
        for kept in snapshots:
            by_length.setdefault(kept.length, kept)
    return tuple(by_length[length] for length in sorted(by_length))


def thinned(
    snapshots: tuple[Snapshot, ...], pinned: Collection[int], most: int = MOST
) -> tuple[Snapshot, ...]:
    """So many snapshots, or those pinned: without those in the middle that lie closest to others.

    The earliest and the latest ones stay longest.
    """
    kept = list(snapshots)

    def gap(place: int) -> int:
        before = kept[place - 1].length if place else 0
        return kept[min(place + 1, len(kept) - 1)].length - before

    def spare(places: Iterable[int]) -> list[int]:
        return [place for place in places if kept[place].length not in pinned]

    while len(kept) > most:
        last = len(kept) - 1
        places = spare(range(1, last + 1 - LATEST)) or spare(range(last)) or spare([last])
        if not places:
            break
        del kept[min(places, key=gap)]
    return tuple(kept)
