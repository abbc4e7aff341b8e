"""An entry: one sequence's layers, earlier states and pins, and to what lengths it can be brought.

Knows no other entry and no limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from phyla.engine.pool.key import outside
from phyla.engine.pool.snapshots import total_bytes

if TYPE_CHECKING:
    from collections.abc import Collection

    from typing_extensions import Self

    from phyla.engine.pool.key import Key
    from phyla.engine.pool.pins import Pin
    from phyla.engine.pool.snapshots import Snapshot


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


@dataclass(eq=False)
class Entry(Generic[L]):
    """What the pool keeps of one sequence.

    Attributes:
        namespace: whose it is.
        key: what was fed.
        layers: they hold it, and perhaps a step more.
        snapshots: of earlier lengths, by length, one for each.
        stable: from this length on, a request counts as the conversation's next turn.
        pins: each has its snapshot.
        nbytes: what admission counted; while it is lent, enough to have its pins back.
        lent: a request has the layers themselves.
        used: when it was last asked for, by the pool's clock.
        turn: of several entries, the least recently used has the lowest.
    """

    namespace: str
    key: Key
    layers: L
    snapshots: tuple[Snapshot, ...]
    stable: int
    pins: tuple[Pin, ...] = ()
    nbytes: int = 0
    lent: bool = False
    used: float = 0.0
    turn: int = 0

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
        length = outside(most, spans)
        if self.can_cut(length):
            return length
        return max(
            (
                kept.length
                for kept in self.snapshots
                if kept.length <= length and outside(kept.length, spans) == kept.length
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
        self.nbytes = self.layers.nbytes + total_bytes(self.snapshots)

    def stripped(self, now: float) -> bool:
        """Whether `strip` can take nothing more away."""
        pinned = self.pinned(now)
        lengths = {kept.length for kept in self.snapshots}
        return lengths <= pinned and max(pinned, default=0) == len(self.key)
