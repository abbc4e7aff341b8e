"""What requests ask of the prompt cache: to be given a beginning, to keep an end, to pin a part."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Generic

from phyla.caching import CacheStats
from phyla.engine.pool.entry import Entry, L
from phyla.engine.pool.key import outside
from phyla.engine.pool.lease import Lease
from phyla.engine.pool.pins import replaced
from phyla.engine.pool.search import explained, search
from phyla.engine.pool.shelf import Shelf
from phyla.engine.pool.snapshots import LATEST, MOST, merged, thinned, total_bytes
from phyla.engine.radix import common_length

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from phyla.caching import CacheExplanation, CacheLimits
    from phyla.engine.pool.key import Key
    from phyla.engine.pool.pins import Pin
    from phyla.engine.pool.search import Found
    from phyla.engine.pool.snapshots import Snapshot


class Pool(Generic[L]):
    """Entries by what was fed, within limits.

    An entry is one sequence's layers, snapshots of earlier states, and pins. A request that goes on
    with an entry's conversation is lent the entry's own layers, so that nothing is copied; one
    that only begins like it gets a fork. What is lent is not counted: the request counts it. Limits
    and the order of eviction are global, and no namespace finds an entry of another one.

    A pin holds its promise against everything, the failure of requests included: an entry with pins
    is not lent but forked. One that is pinned while it is lent has room reserved.
    """

    def __init__(self, limits: CacheLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self.clock = clock
        self._shelf: Shelf[L] = Shelf(limits)
        self._hits = self._misses = self._hit_tokens = 0

    # What a request asks for

    def acquire(self, key: Key, *, namespace: str = "") -> Lease[L]:
        """Find the longest prefix that need not be fed again, and get layers that hold it.

        It is at least `min_tokens` long, ends inside no media span, and leaves at least one item.
        """
        self.expire()
        now = self.clock()
        found = self._search(key, namespace, now)
        explanation = explained(found, key, self.limits)
        entry, length = found.entry, found.length
        if entry is None:
            self._misses += 1
            return Lease(0, None, (), explanation, key.cut(0), namespace)
        if found.lends:
            self._lend(entry, length, now)
            layers = entry.layers
        else:
            layers = entry.fork(length)
        self._shelf.touch(entry, now)
        self._hits += 1
        self._hit_tokens += length
        snapshots = tuple(kept for kept in entry.snapshots if kept.length <= length)
        lent = entry if found.lends else None
        return Lease(length, layers, snapshots, explanation, key.cut(length), namespace, lent)

    def explain(self, key: Key, *, namespace: str = "") -> CacheExplanation:
        """What `acquire` would find, and what limits it. Changes nothing."""
        return explained(self._search(key, namespace, self.clock()), key, self.limits)

    def pinned_length(self, key: Key, *, namespace: str = "") -> int:
        """How long the longest pinned prefix of `key` is."""
        now = self.clock()
        longest = 0
        for shared, entry in self._shelf.matches(key, namespace):
            if shared <= longest:
                break
            longest = max(longest, *(n for n in entry.pinned(now) if n <= shared), 0)
        return longest

    # What a request gives back

    def store(
        self,
        lease: Lease[L] | None,
        key: Key,
        layers: L,
        *,
        snapshots: Iterable[Snapshot],
        stable: int,
        namespace: str = "",
        pins: Iterable[Pin] = (),
    ) -> None:
        """Keep what a request computed; the layers belong to the pool from now on.

        Room is made before it is admitted. What does not fit is kept with fewer snapshots, else up
        to its longest pin, else not at all. Shorter entries that it continues are merged into it.

        Args:
            lease: what the request started from; it ends here.
            key: what was fed; of what the layers hold, this much is right.
            layers: the request's.
            snapshots: of states on the way, beyond those of the lease.
            stable: from this length on, another request counts as this conversation's next turn.
            namespace: the request's.
            pins: lengths of `key` to protect. One is left out where its state is lost, where no hit
                could end, or where there is no room for it; see `pinned_length`.
        """
        self.expire()
        now = self.clock()
        key = key.cut(layers.length)
        kept = merged(snapshot for snapshot in snapshots if snapshot.length <= len(key))
        entry = Entry(namespace, key, layers, kept, min(stable, len(key)))
        if lease is not None:
            self._inherit(entry, lease, now)
        if len(key) < self.limits.min_tokens or self.limits.bytes == 0 or self.limits.entries == 0:
            return
        layers.compact()
        wanted = [pin for pin in pins if self._may_pin(key, pin, now)]
        states = [entry.state_at(pin.length) for pin in wanted]
        wanted = [pin for pin, state in zip(wanted, states, strict=True) if state is not None]
        entry.snapshots = merged(entry.snapshots, (state for state in states if state is not None))
        for pin in wanted:
            entry.pins = replaced(entry.pins, [pin])
        if self._admit_what_fits(entry, now):
            self._unpin_elsewhere({pin.name for pin in wanted if pin in entry.pins}, entry)

    def release(self, lease: Lease[L]) -> None:
        """End a lease whose layers can no longer be trusted. What was lent is dropped.

        To be called, too, before lent layers are changed in any other way than by appending: others
        may fork from them meanwhile.
        """
        if lease.entry is not None:
            self._shelf.remove(lease.entry)
        lease.end()

    # Pins

    def add_pins(self, key: Key, pins: Iterable[Pin], *, namespace: str = "") -> tuple[Pin, ...]:
        """Pin prefixes of `key` that some entry holds.

        Returns:
            The pins that are set. One is left out where no entry can be brought to that length,
            where no hit could end, or where there is no room for it.
        """
        self.expire()
        now = self.clock()
        return tuple(
            pin
            for pin in pins
            if self._may_pin(key, pin, now) and self._pin(key, pin, namespace, now)
        )

    def drop_pins(self, owner: object) -> None:
        """Take away all pins that a request has set."""
        for entry in self._shelf.entries:
            entry.pins = tuple(pin for pin in entry.pins if pin.owner is not owner)

    def unpin(self, name: str, *, namespace: str | None = None) -> bool:
        """Take away the pin of that name, in one namespace or in all; whether there was one."""
        now = self.clock()
        found = False
        for entry in self._shelf.entries:
            if namespace is None or entry.namespace == namespace:
                found |= any(pin.name == name and now < pin.deadline for pin in entry.pins)
                entry.pins = tuple(pin for pin in entry.pins if pin.name != name)
        return found

    # Room

    @property
    def nbytes(self) -> int:
        """What the entries take up that are not lent; a part that two share counts twice."""
        return self._shelf.nbytes

    @property
    def pinned_nbytes(self) -> int:
        """What of it pins may keep from being evicted."""
        return self._shelf.pinned_nbytes(self.clock())

    def shrink_to(self, nbytes: int) -> None:
        """Evict until the pool takes up no more than this.

        The least recently used goes first. Entries with pins are not evicted, but cut to their
        longest pin when nothing else is left; what is lent is left alone.
        """
        self._shelf.shrink_to(nbytes, self.clock())

    def expire(self) -> None:
        """Drop what nobody used for too long; every `acquire` and `store` does so too."""
        self._shelf.expire(self.clock())

    def clear(self) -> None:
        """Drop all entries but those lent, and all pins."""
        for entry in list(self._shelf.entries):
            if entry.lent:
                entry.pins = ()
            else:
                self._shelf.remove(entry)

    def stats(self) -> CacheStats:
        """What it holds, and what it did so far."""
        now, entries = self.clock(), self._shelf.entries
        return CacheStats(
            entries=len(entries),
            lent_entries=sum(entry.lent for entry in entries),
            pinned_entries=sum(bool(entry.pinned(now)) for entry in entries),
            bytes=self.nbytes,
            limit_bytes=self.limits.bytes,
            hits=self._hits,
            misses=self._misses,
            hit_tokens=self._hit_tokens,
            evictions=self._shelf.evictions,
            expirations=self._shelf.expirations,
        )

    # Finding

    def _search(self, key: Key, namespace: str, now: float) -> Found[L]:
        shelf = self._shelf
        matches = shelf.matches(key, namespace)
        there = ((shared, entry) for shared, entry in matches if not shelf.idle(entry, now))
        return search(there, key, min_tokens=self.limits.min_tokens, now=now)

    # Handing over

    def _lend(self, entry: Entry[L], length: int, now: float) -> None:
        # Forgotten until it is done: an error on the way then costs the entry and nothing else.
        self._shelf.remove(entry)
        entry.rewind(length)
        if entry.snapshot_at(length) is None:
            # The request appends, and others may still want to start from here.
            snapshots = thinned(
                merged(entry.snapshots, [entry.layers.snapshot()]), entry.pinned(now)
            )
            nbytes = entry.nbytes + total_bytes(snapshots) - total_bytes(entry.snapshots)
            # Without pins it takes up nothing while it is lent.
            if not entry.pinned(now) or self._shelf.make_room(nbytes, (), now):
                entry.snapshots, entry.nbytes = snapshots, nbytes
        entry.lent = True
        self._shelf.add(entry)

    def _inherit(self, entry: Entry[L], lease: Lease[L], now: float) -> None:
        """Take over what the lease leads to, and end it."""
        assert not lease.ended, "a lease ends once"
        assert lease.namespace == entry.namespace, "a lease ends in its own namespace"
        shared = common_length(lease.key.items, entry.key.items)
        snapshots = lease.snapshots
        if lease.entry is not None:
            self._shelf.remove(lease.entry)
            snapshots = lease.entry.snapshots
            entry.pins = tuple(
                pin for pin in lease.entry.pins if pin.length <= shared and now < pin.deadline
            )
        entry.snapshots = merged(
            entry.snapshots, (kept for kept in snapshots if kept.length <= shared)
        )
        lease.end()

    def _admit_what_fits(self, entry: Entry[L], now: float) -> bool:
        if any(self._admit(entry, now, most) for most in (MOST, LATEST, 1, 0)):
            return True
        for length in sorted(entry.pinned(now), reverse=True):
            entry.strip(length, {pinned for pinned in entry.pinned(now) if pinned <= length})
            if self._admit(entry, now, 0):
                return True
        return False

    def _admit(self, entry: Entry[L], now: float, most: int) -> bool:
        """Make room for an entry with so many snapshots, and put it in.

        Where that is impossible, neither it nor what it continues has changed.
        """
        continued = self._shelf.continued_by(entry)
        snapshots, pins = entry.snapshots, entry.pins
        for old in continued:
            end = old.state_at(len(old.key)) if len(old.key) < len(entry.key) else None
            snapshots = merged(snapshots, old.snapshots, () if end is None else (end,))
            pins = replaced((pin for pin in old.pins if now < pin.deadline), pins)
        pinned = {pin.length for pin in pins if now < pin.deadline}
        snapshots = thinned(snapshots, pinned, most)
        nbytes = entry.layers.nbytes + total_bytes(snapshots)
        if not self._shelf.make_room(nbytes, continued, now):
            return False
        for old in continued:
            self._shelf.remove(old)
        entry.snapshots, entry.pins, entry.nbytes = snapshots, pins, nbytes
        self._shelf.touch(entry, now)
        self._shelf.add(entry)
        return True

    # Pinning

    def _may_pin(self, key: Key, pin: Pin, now: float) -> bool:
        """Whether a hit could ever end there."""
        in_reach = self.limits.min_tokens <= pin.length <= len(key)
        return in_reach and now < pin.deadline and outside(pin.length, key.spans) == pin.length

    def _pin(self, key: Key, pin: Pin, namespace: str, now: float) -> bool:
        holders: list[Entry[L]] = []
        for shared, entry in self._shelf.matches(key, namespace):
            if shared < pin.length:
                break
            if entry.can_cut(pin.length) or entry.snapshot_at(pin.length) is not None:
                holders.append(entry)
        # One that is not lent is safe from the failure of a request.
        for entry in sorted(holders, key=lambda entry: entry.lent):
            state = entry.state_at(pin.length)
            assert state is not None
            pins = replaced(entry.pins, [pin])
            snapshots = thinned(merged(entry.snapshots, [state]), {other.length for other in pins})
            nbytes = entry.nbytes + total_bytes(snapshots) - total_bytes(entry.snapshots)
            if self._shelf.make_room(nbytes, [entry], now):
                entry.snapshots, entry.pins, entry.nbytes = snapshots, pins, nbytes
                self._unpin_elsewhere({pin.name}, entry)
                return True
        return False

    def _unpin_elsewhere(self, names: Collection[str | None], holder: Entry[L]) -> None:
        """Take from the other entries of its namespace the pins that now have their name here.

        Pins without one stay: in another entry, the same length is another prefix.
        """
        for entry in self._shelf.entries:
            if entry is not holder and entry.namespace == holder.namespace:
                entry.pins = tuple(
                    pin for pin in entry.pins if pin.name is None or pin.name not in names
                )
