"""The prompt cache: what was computed for earlier requests, found again by what was fed.

Knows nothing of models, layers or MLX: it works on the `Layers` protocol, and decides which of
them to keep, to hand over, to copy and to drop. It runs on the engine's thread; nothing is locked.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from phyla.caching import CacheExplanation, CacheStats
from phyla.engine.radix import RadixTree, common_length

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable

    from typing_extensions import Self

    from phyla.caching import CacheLimits, LimitedBy

_MOST_SNAPSHOTS = 16  # of one entry; more only where they are pinned
_LATEST = 4  # of these, the latest are not thinned out: the next turn starts from one of them


class Snapshot(Protocol):
    """The state at one length of those layers that cannot be cut everywhere."""

    @property
    def length(self) -> int: ...
    @property
    def nbytes(self) -> int: ...


class Layers(Protocol):
    """The caches of all layers of one sequence."""

    @property
    def length(self) -> int:
        """How many items they hold."""
        ...

    @property
    def nbytes(self) -> int:
        """What they take up, spare capacity included."""
        ...

    @property
    def floor(self) -> int:
        """They can be cut to any length from here to `length`."""
        ...

    def fork(self, length: int) -> Self:
        """Their first `length` items, copied on write."""
        ...

    def cut(self, length: int) -> None:
        """Drop what comes after the first `length` items, in place."""
        ...

    def snapshot(self) -> Snapshot:
        """The state at the current length."""
        ...

    # A snapshot is always one of this object's, or of one that it was forked from.

    def fork_at(self, snapshot: Any) -> Self:
        """Their first `snapshot.length` items, copied on write."""
        ...

    def restore(self, snapshot: Any) -> None:
        """Drop what comes after the first `snapshot.length` items, in place."""
        ...

    def compact(self) -> None:
        """Drop spare capacity."""
        ...


L = TypeVar("L", bound=Layers)


@dataclass(frozen=True)
class Key:
    """What was fed.

    Attributes:
        items: token ids, and for each position of a media span something that tells the content of
            the whole span: where two keys have the same items, they have the same spans.
        spans: the media spans, `[start, stop)`; no hit ends inside one.
    """

    items: tuple[Hashable, ...]
    spans: tuple[tuple[int, int], ...] = ()

    def __len__(self) -> int:
        return len(self.items)

    def cut(self, length: int) -> Key:
        """The first `length` items. A span that is cut through keeps its stop: it is no end."""
        if length >= len(self.items):
            return self
        spans = tuple(span for span in self.spans if span[0] < length)
        return Key(self.items[:length], spans)


@dataclass(frozen=True)
class Pin:
    """Protects a prefix of an entry until its deadline.

    Attributes:
        length: how many items.
        deadline: when it ends, by the pool's clock.
        name: by which it can be taken away; in a namespace, a new pin of that name takes the old
            one's place.
        owner: the request that set it, told by identity. The pin keeps a reference to it.
    """

    length: int
    deadline: float
    name: str | None = None
    owner: object = field(default=None, repr=False, compare=False)

    def replaces(self, old: Pin) -> bool:
        """Whether the old pin, of the same entry, is to go when this one is set."""
        if self.name is not None or old.name is not None:
            return self.name == old.name
        same = self.owner is old.owner and self.length == old.length
        return same and self.deadline >= old.deadline


@dataclass(eq=False)
class _Entry(Generic[L]):
    namespace: str
    key: Key
    layers: L
    snapshots: tuple[Snapshot, ...]  # by length, one for each
    stable: int
    pins: tuple[Pin, ...] = ()  # each has its snapshot
    nbytes: int = 0  # what admission counted; while it is lent, enough to have its pins back
    lent: bool = False
    used: float = 0.0
    turn: int = 0  # of several entries, the least recently used has the lowest

    def pinned(self, now: float) -> set[int]:
        """The lengths that are pinned."""
        return {pin.length for pin in self.pins if now < pin.deadline}

    def can_cut(self, length: int) -> bool:
        return self.layers.floor <= length <= self.layers.length

    def snapshot_at(self, length: int) -> Snapshot | None:
        return next((kept for kept in self.snapshots if kept.length == length), None)

    def reusable(self, most: int, spans: tuple[tuple[int, int], ...]) -> int:
        """The greatest length up to `most` at which a request with these spans can go on, or 0."""
        spans = self.key.spans + spans
        length = _outside(most, spans)
        if self.can_cut(length):
            return length
        return max(
            (
                kept.length
                for kept in self.snapshots
                if kept.length <= length and _outside(kept.length, spans) == kept.length
            ),
            default=0,
        )

    def lendable(self, length: int, now: float) -> bool:
        """Whether a request that goes on from there may have the layers themselves."""
        # What is pinned has to outlive the failure of a request, so no request gets it for itself.
        goes_on = length == len(self.key) or length >= self.stable
        return goes_on and not self.lent and not self.pinned(now)

    def state_at(self, length: int) -> Snapshot | None:
        """A snapshot, taken now if there is none yet; None where the state is lost."""
        kept = self.snapshot_at(length)
        if kept is None and self.can_cut(length):
            kept = self.layers.fork(length).snapshot()
        return kept

    def fork(self, length: int) -> L:
        if self.can_cut(length):
            return self.layers.fork(length)
        return self.layers.fork_at(self.snapshot_at(length))

    def rewind(self, length: int) -> None:
        """Drop what comes after `length`, in place."""
        if not self.can_cut(length):
            self.layers.restore(self.snapshot_at(length))
        elif length < self.layers.length:
            self.layers.cut(length)
        self.key = self.key.cut(length)
        self.stable = min(self.stable, length)
        self.snapshots = tuple(kept for kept in self.snapshots if kept.length <= length)
        self.pins = tuple(pin for pin in self.pins if pin.length <= length)

    def strip(self, length: int, pinned: Collection[int]) -> None:
        """Keep only what these pins need, the greatest of which is `length`, in place."""
        self.rewind(length)
        self.snapshots = tuple(kept for kept in self.snapshots if kept.length in pinned)
        self.layers.compact()
        self.nbytes = self.layers.nbytes + _bytes(self.snapshots)

    def stripped(self, now: float) -> bool:
        """Whether `strip` can take nothing more away."""
        pinned = self.pinned(now)
        lengths = {kept.length for kept in self.snapshots}
        return lengths <= pinned and max(pinned, default=0) == len(self.key)


@dataclass(eq=False)
class Lease(Generic[L]):
    """What a request starts from. It ends with `Pool.store` or `Pool.release`, whichever is first.

    Attributes:
        length: how many items need not be fed.
        layers: they hold just these, and are the request's to append to; None when it is cold.
        snapshots: of earlier lengths, by length; `Pool.store` keeps them without being told.
        explanation: what limited the hit.
        key: the items that the layers hold.
    """

    length: int
    layers: L | None
    snapshots: tuple[Snapshot, ...]
    explanation: CacheExplanation
    key: Key = field(repr=False)
    namespace: str = ""
    entry: _Entry[L] | None = field(default=None, repr=False)  # the pool's own: the one lent
    ended: bool = False

    @property
    def lent(self) -> bool:
        """Whether the layers are an entry's own, and not a copy."""
        return self.entry is not None


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
        self._trees: dict[str, RadixTree[_Entry[L]]] = {}
        self._entries: set[_Entry[L]] = set()
        self._turn = 0
        self._hits = self._misses = self._hit_tokens = self._evictions = self._expirations = 0

    # What a request asks for

    def acquire(self, key: Key, *, namespace: str = "") -> Lease[L]:
        """Find the longest prefix that need not be fed again, and get layers that hold it.

        It is at least `min_tokens` long, ends inside no media span, and leaves at least one item.
        """
        self.expire()
        now = self.clock()
        found = self._search(key, namespace, now)
        explanation = self._explained(found, key)
        entry, length = found.entry, found.length
        if entry is None:
            self._misses += 1
            return Lease(0, None, (), explanation, key.cut(0), namespace)
        if found.lends:
            self._lend(entry, length, now)
            layers = entry.layers
        else:
            layers = entry.fork(length)
        self._touch(entry, now)
        self._hits += 1
        self._hit_tokens += length
        snapshots = tuple(kept for kept in entry.snapshots if kept.length <= length)
        lent = entry if found.lends else None
        return Lease(length, layers, snapshots, explanation, key.cut(length), namespace, lent)

    def explain(self, key: Key, *, namespace: str = "") -> CacheExplanation:
        """What `acquire` would find, and what limits it. Changes nothing."""
        return self._explained(self._search(key, namespace, self.clock()), key)

    def pinned_length(self, key: Key, *, namespace: str = "") -> int:
        """How long the longest pinned prefix of `key` is."""
        now = self.clock()
        longest = 0
        for shared, entry in self._matches(key, namespace):
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
        kept = _merged(snapshot for snapshot in snapshots if snapshot.length <= len(key))
        entry = _Entry(namespace, key, layers, kept, min(stable, len(key)))
        if lease is not None:
            self._inherit(entry, lease, now)
        if len(key) < self.limits.min_tokens or self.limits.bytes == 0 or self.limits.entries == 0:
            return
        layers.compact()
        wanted = [pin for pin in pins if self._may_pin(key, pin, now)]
        states = [entry.state_at(pin.length) for pin in wanted]
        wanted = [pin for pin, state in zip(wanted, states, strict=True) if state is not None]
        entry.snapshots = _merged(entry.snapshots, (state for state in states if state is not None))
        for pin in wanted:
            entry.pins = _replaced(entry.pins, [pin])
        if self._admit_what_fits(entry, now):
            self._unpin_elsewhere({pin.name for pin in wanted if pin in entry.pins}, entry)

    def release(self, lease: Lease[L]) -> None:
        """End a lease whose layers can no longer be trusted. What was lent is dropped.

        To be called, too, before lent layers are changed in any other way than by appending: others
        may fork from them meanwhile.
        """
        if lease.entry is not None:
            self._forget(lease.entry)
        _end(lease)

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
        for entry in self._entries:
            entry.pins = tuple(pin for pin in entry.pins if pin.owner is not owner)

    def unpin(self, name: str, *, namespace: str | None = None) -> bool:
        """Take away the pin of that name, in one namespace or in all; whether there was one."""
        now = self.clock()
        found = False
        for entry in self._entries:
            if namespace is None or entry.namespace == namespace:
                found |= any(pin.name == name and now < pin.deadline for pin in entry.pins)
                entry.pins = tuple(pin for pin in entry.pins if pin.name != name)
        return found

    # Room

    @property
    def nbytes(self) -> int:
        """What the entries take up that are not lent; a part that two share counts twice."""
        return sum(entry.nbytes for entry in self._entries if not entry.lent)

    @property
    def pinned_nbytes(self) -> int:
        """What of it pins may keep from being evicted."""
        now = self.clock()
        return sum(entry.nbytes for entry in self._entries if not entry.lent and entry.pinned(now))

    def shrink_to(self, nbytes: int) -> None:
        """Evict until the pool takes up no more than this.

        The least recently used goes first. Entries with pins are not evicted, but cut to their
        longest pin when nothing else is left; what is lent is left alone.
        """
        entries = [entry for entry in self._entries if not entry.lent]
        self._reduce(entries, nbytes, inf, self.clock())

    def expire(self) -> None:
        """Drop what nobody used for too long; every `acquire` and `store` does so too."""
        now = self.clock()
        for entry in list(self._entries):
            entry.pins = tuple(pin for pin in entry.pins if now < pin.deadline)
            if self._idle(entry, now):
                self._forget(entry)
                self._expirations += 1

    def clear(self) -> None:
        """Drop all entries but those lent, and all pins."""
        for entry in list(self._entries):
            if entry.lent:
                entry.pins = ()
            else:
                self._forget(entry)

    def stats(self) -> CacheStats:
        """What it holds, and what it did so far."""
        now = self.clock()
        return CacheStats(
            entries=len(self._entries),
            lent_entries=sum(entry.lent for entry in self._entries),
            pinned_entries=sum(bool(entry.pinned(now)) for entry in self._entries),
            bytes=self.nbytes,
            limit_bytes=self.limits.bytes,
            hits=self._hits,
            misses=self._misses,
            hit_tokens=self._hit_tokens,
            evictions=self._evictions,
            expirations=self._expirations,
        )

    # Finding

    def _matches(self, key: Key, namespace: str) -> Iterable[tuple[int, _Entry[L]]]:
        tree = self._trees.get(namespace)
        return () if tree is None else tree.matches(key.items)

    def _search(self, key: Key, namespace: str, now: float) -> _Found[L]:
        found: _Found[L] = _Found()
        for shared, entry in self._matches(key, namespace):
            if self._idle(entry, now):
                continue
            if found.closest is None:
                found.closest, found.matched = entry, shared
            most = min(shared, len(key) - 1)
            if most < max(found.length, self.limits.min_tokens):
                break
            length = entry.reusable(most, key.spans)
            if length < self.limits.min_tokens or length < found.length:
                continue
            lends = entry.lendable(length, now)
            # Of equal ones, the first that can be handed over: that saves a copy.
            if length > found.length or (lends and not found.lends):
                found.entry, found.length, found.lends = entry, length, lends
        return found

    def _explained(self, found: _Found[L], key: Key) -> CacheExplanation:
        total, matched, length = len(key), found.matched, found.length
        if self.limits.bytes == 0 or self.limits.entries == 0:
            return CacheExplanation.disabled(total)

        def because(reason: LimitedBy, detail: str) -> CacheExplanation:
            return CacheExplanation(
                cached_tokens=length,
                matched_tokens=matched,
                prompt_tokens=total,
                limited_by=reason,
                detail=detail,
            )

        if found.closest is None:
            return because("empty", "The cache holds nothing yet, in this namespace.")
        most = min(matched, total - 1)
        whole = _outside(most, found.closest.key.spans + key.spans)
        if length == total - 1:
            return because("nothing", "All but the last token is reused.")
        if most < self.limits.min_tokens and matched > 0:
            return because(
                "minimum",
                f"The common part of {most} tokens is shorter than the least that is reused, "
                f"{self.limits.min_tokens}.",
            )
        if whole < most and (length >= whole or whole < self.limits.min_tokens):
            return because(
                "media",
                f"The common part ends at token {most}, inside an image, audio or video item that "
                f"begins at token {whole} and is reused whole or not at all.",
            )
        if length < most:
            return because(
                "snapshot",
                f"{most} tokens could be reused, but the layers cannot be brought back to "
                f"that length; the nearest state kept is at {length} tokens.",
            )
        if matched == len(found.closest.key):
            return because(
                "divergence",
                f"The longest entry that this prompt continues ends after {matched} tokens; the "
                "rest is new.",
            )
        media = any(start == matched < stop for start, stop in key.spans)
        where = ", where an image, audio or video item begins" if media else ""
        return because(
            "divergence",
            f"The prompt differs from the closest entry at token {matched}{where}.",
        )

    # Handing over

    def _lend(self, entry: _Entry[L], length: int, now: float) -> None:
        # Forgotten until it is done: an error on the way then costs the entry and nothing else.
        self._forget(entry)
        entry.rewind(length)
        if entry.snapshot_at(length) is None:
            # The request appends, and others may still want to start from here.
            snapshots = _thinned(
                _merged(entry.snapshots, [entry.layers.snapshot()]), entry.pinned(now)
            )
            nbytes = entry.nbytes + _bytes(snapshots) - _bytes(entry.snapshots)
            # Without pins it takes up nothing while it is lent.
            if not entry.pinned(now) or self._make_room(nbytes, (), now):
                entry.snapshots, entry.nbytes = snapshots, nbytes
        entry.lent = True
        self._remember(entry)

    def _inherit(self, entry: _Entry[L], lease: Lease[L], now: float) -> None:
        """Take over what the lease leads to, and end it."""
        assert not lease.ended, "a lease ends once"
        assert lease.namespace == entry.namespace, "a lease ends in its own namespace"
        shared = common_length(lease.key.items, entry.key.items)
        snapshots = lease.snapshots
        if lease.entry is not None:
            self._forget(lease.entry)
            snapshots = lease.entry.snapshots
            entry.pins = tuple(
                pin for pin in lease.entry.pins if pin.length <= shared and now < pin.deadline
            )
        entry.snapshots = _merged(
            entry.snapshots, (kept for kept in snapshots if kept.length <= shared)
        )
        _end(lease)

    def _admit_what_fits(self, entry: _Entry[L], now: float) -> bool:
        if any(self._admit(entry, now, most) for most in (_MOST_SNAPSHOTS, _LATEST, 1, 0)):
            return True
        for length in sorted(entry.pinned(now), reverse=True):
            entry.strip(length, {pinned for pinned in entry.pinned(now) if pinned <= length})
            if self._admit(entry, now, 0):
                return True
        return False

    def _admit(self, entry: _Entry[L], now: float, most: int) -> bool:
        """Make room for an entry with so many snapshots, and put it in.

        Where that is impossible, neither it nor what it continues has changed.
        """
        tree = self._trees.get(entry.namespace)
        continued = [old for old in tree.prefixes(entry.key.items) if not old.lent] if tree else []
        snapshots, pins = entry.snapshots, entry.pins
        for old in continued:
            end = old.state_at(len(old.key)) if len(old.key) < len(entry.key) else None
            snapshots = _merged(snapshots, old.snapshots, () if end is None else (end,))
            pins = _replaced((pin for pin in old.pins if now < pin.deadline), pins)
        pinned = {pin.length for pin in pins if now < pin.deadline}
        snapshots = _thinned(snapshots, pinned, most)
        nbytes = entry.layers.nbytes + _bytes(snapshots)
        if not self._make_room(nbytes, continued, now):
            return False
        for old in continued:
            self._forget(old)
        entry.snapshots, entry.pins, entry.nbytes = snapshots, pins, nbytes
        self._touch(entry, now)
        self._remember(entry)
        return True

    # Pinning

    def _may_pin(self, key: Key, pin: Pin, now: float) -> bool:
        """Whether a hit could ever end there."""
        in_reach = self.limits.min_tokens <= pin.length <= len(key)
        return in_reach and now < pin.deadline and _outside(pin.length, key.spans) == pin.length

    def _pin(self, key: Key, pin: Pin, namespace: str, now: float) -> bool:
        holders: list[_Entry[L]] = []
        for shared, entry in self._matches(key, namespace):
            if shared < pin.length:
                break
            if entry.can_cut(pin.length) or entry.snapshot_at(pin.length) is not None:
                holders.append(entry)
        # One that is not lent is safe from the failure of a request.
        for entry in sorted(holders, key=lambda entry: entry.lent):
            state = entry.state_at(pin.length)
            assert state is not None
            pins = _replaced(entry.pins, [pin])
            snapshots = _thinned(
                _merged(entry.snapshots, [state]), {other.length for other in pins}
            )
            nbytes = entry.nbytes + _bytes(snapshots) - _bytes(entry.snapshots)
            if self._make_room(nbytes, [entry], now):
                entry.snapshots, entry.pins, entry.nbytes = snapshots, pins, nbytes
                self._unpin_elsewhere({pin.name}, entry)
                return True
        return False

    def _unpin_elsewhere(self, names: Collection[str | None], holder: _Entry[L]) -> None:
        """Take from the other entries of its namespace the pins that now have their name here.

        Pins without one stay: in another entry, the same length is another prefix.
        """
        for entry in self._entries:
            if entry is not holder and entry.namespace == holder.namespace:
                entry.pins = tuple(
                    pin for pin in entry.pins if pin.name is None or pin.name not in names
                )

    # Keeping and dropping

    def _remember(self, entry: _Entry[L]) -> None:
        self._entries.add(entry)
        self._trees.setdefault(entry.namespace, RadixTree()).insert(entry.key.items, entry)

    def _forget(self, entry: _Entry[L]) -> None:
        self._entries.remove(entry)
        tree = self._trees[entry.namespace]
        tree.remove(entry.key.items, entry)
        if not tree:
            del self._trees[entry.namespace]

    def _touch(self, entry: _Entry[L], now: float) -> None:
        self._turn += 1
        entry.used, entry.turn = now, self._turn

    def _idle(self, entry: _Entry[L], now: float) -> bool:
        limit = self.limits.idle_seconds
        if limit is None or entry.lent or now - entry.used < limit:
            return False
        return not entry.pinned(now)

    def _make_room(self, nbytes: int, replaced: Collection[_Entry[L]], now: float) -> bool:
        """Make room for an entry of that size in the place of some others, if that is possible."""
        limit = inf if self.limits.bytes is None else self.limits.bytes
        others = [entry for entry in self._entries if entry not in replaced]
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
        self, entries: Collection[_Entry[L]], nbytes: float, count: float, now: float
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
            self._forget(entry)
            self._evictions += 1
            total -= entry.nbytes
            number -= 1
        for entry in pinned:
            if total <= nbytes:
                break
            if not entry.stripped(now):
                total -= entry.nbytes
                self._forget(entry)
                lengths = entry.pinned(now)
                entry.strip(max(lengths), lengths)
                self._remember(entry)
                total += entry.nbytes
        return total <= nbytes and number <= count


@dataclass
class _Found(Generic[L]):
    """What a search saw: the entry to reuse, and the one that has most in common."""

    entry: _Entry[L] | None = None
    length: int = 0
    lends: bool = False
    closest: _Entry[L] | None = None
    matched: int = 0


def _end(lease: Lease[Any]) -> None:
    lease.ended = True
    lease.layers, lease.snapshots, lease.entry = None, (), None


def _outside(length: int, spans: tuple[tuple[int, int], ...]) -> int:
    """The greatest length up to this one that ends inside no span."""
    for start, stop in sorted(spans, reverse=True):
        if start < length < stop:
            length = start
    return length


def _bytes(snapshots: Iterable[Snapshot]) -> int:
    return sum(kept.nbytes for kept in snapshots)


def _merged(*several: Iterable[Snapshot]) -> tuple[Snapshot, ...]:
    """One snapshot for each length, in order; of two, the first given."""
    by_length: dict[int, Snapshot] = {}
    for snapshots in several:
        for kept in snapshots:
            by_length.setdefault(kept.length, kept)
    return tuple(by_length[length] for length in sorted(by_length))


def _thinned(
    snapshots: tuple[Snapshot, ...], pinned: Collection[int], most: int = _MOST_SNAPSHOTS
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
        places = spare(range(1, last + 1 - _LATEST)) or spare(range(last)) or spare([last])
        if not places:
            break
        del kept[min(places, key=gap)]
    return tuple(kept)


def _replaced(old: Iterable[Pin], new: Iterable[Pin]) -> tuple[Pin, ...]:
    """The new pins, and those of the old ones that they do not replace."""
    new = tuple(new)
    return (*(pin for pin in old if not any(other.replaces(pin) for other in new)), *new)
