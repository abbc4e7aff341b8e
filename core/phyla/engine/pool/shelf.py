"""The entries of a pool: found by key, told apart by namespace, and kept within its limits.

Knows which entry has to go when there is no room, and nothing of the requests that use them.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Generic

from phyla.engine.pool.entry import Entry, L
from phyla.engine.radix import RadixTree

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from phyla.caching import CacheLimits
    from phyla.engine.pool.key import Key


class Shelf(Generic[L]):
    """Entries within limits, which are global: no namespace has a share of its own.

    What is lent counts neither in bytes nor in number, unless it is pinned: then its room stays
    reserved, and it comes back.

    Attributes:
        limits: how much it may hold.
        entries: all of them.
        evictions: how many were dropped to make room.
        expirations: how many were dropped because nobody used them.
    """

    def __init__(self, limits: CacheLimits) -> None:
        self.limits = limits
        self.entries: set[Entry[L]] = set()
        self.evictions = self.expirations = 0
        self._trees: dict[str, RadixTree[Entry[L]]] = {}
        self._turn = 0

    def matches(self, key: Key, namespace: str) -> Iterator[tuple[int, Entry[L]]]:
        """How much each entry of a namespace shares with a key, and the entry; longest first."""
        tree = self._trees.get(namespace)
        return iter(()) if tree is None else tree.matches(key.items)

    def continued_by(self, entry: Entry[L]) -> list[Entry[L]]:
        """The entries that this one goes on from, or equals, without those lent."""
        tree = self._trees.get(entry.namespace)
        return [old for old in tree.prefixes(entry.key.items) if not old.lent] if tree else []

    def add(self, entry: Entry[L]) -> None:
        """Put it in; room was made before."""
        self.entries.add(entry)
        self._trees.setdefault(entry.namespace, RadixTree()).insert(entry.key.items, entry)

    def remove(self, entry: Entry[L]) -> None:
        """Take it out. An entry is out while its key changes."""
        self.entries.remove(entry)
        tree = self._trees[entry.namespace]
        tree.remove(entry.key.items, entry)
        if not tree:
            del self._trees[entry.namespace]

    def touch(self, entry: Entry[L], now: float) -> None:
        """It is the most recently used from now on."""
        self._turn += 1
        entry.used, entry.turn = now, self._turn

    def idle(self, entry: Entry[L], now: float) -> bool:
        """Whether nobody used it for too long."""
        limit = self.limits.idle_seconds
        if limit is None or entry.lent or now - entry.used < limit:
            return False
        return not entry.pinned(now)

    def expire(self, now: float) -> None:
        """Drop pins that have ended, and entries that nobody used for too long."""
        for entry in list(self.entries):
            entry.pins = tuple(pin for pin in entry.pins if now < pin.deadline)
            if self.idle(entry, now):
                self.remove(entry)
                self.expirations += 1

    @property
    def nbytes(self) -> int:
        """What the entries take up that are not lent; a part that two share counts twice."""
        return sum(entry.nbytes for entry in self.entries if not entry.lent)

    def pinned_nbytes(self, now: float) -> int:
        """What of it pins may keep from being evicted."""
        return sum(entry.nbytes for entry in self.entries if not entry.lent and entry.pinned(now))

    def shrink_to(self, nbytes: int, now: float) -> None:
        """Evict until the entries that are not lent take up no more than this, if they can be."""
        self._reduce([entry for entry in self.entries if not entry.lent], nbytes, inf, now)

    def make_room(self, nbytes: int, replaced: Collection[Entry[L]], now: float) -> bool:
        """Make room for an entry of that size in the place of some others, if that is possible."""
        limit = inf if self.limits.bytes is None else self.limits.bytes
        others = [entry for entry in self.entries if entry not in replaced]
        reserved = [entry for entry in others if entry.lent and entry.pinned(now)]
        others = [entry for entry in others if not entry.lent]
        room = limit - nbytes - sum(entry.nbytes for entry in reserved)
        slots = self.limits.entries - 1 - len(reserved)
        # Do not evict anything when it would be in vain.
        pinned = [entry for entry in others if entry.pinned(now)]
        fixed = sum(entry.nbytes for entry in pinned if entry.stripped(now))
        if fixed > room or len(pinned) > slots:
            return False
        return self._reduce(others, room, slots, now)

    def _reduce(
        self, entries: Collection[Entry[L]], nbytes: float, count: float, now: float
    ) -> bool:
        """Evict or cut some of these entries until the rest is within both limits, if it can be."""
        oldest_first = sorted(entries, key=lambda entry: entry.turn)
        pinned = [entry for entry in oldest_first if entry.pinned(now)]
        total, number = sum(entry.nbytes for entry in entries), len(entries)
        for entry in oldest_first:
            if total <= nbytes and number <= count:
                return True
            if entry.pinned(now):
                continue
            self.remove(entry)
            self.evictions += 1
            total -= entry.nbytes
            number -= 1
        for entry in pinned:
            if total <= nbytes:
                break
            if not entry.stripped(now):
                total -= entry.nbytes
                self.remove(entry)
                lengths = entry.pinned(now)
                entry.strip(max(lengths), lengths)
                self.add(entry)
                total += entry.nbytes
        return total <= nbytes and number <= count
