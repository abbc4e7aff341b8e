"""A lease: what a request has of the pool while it runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic

from phyla.engine.pool.entry import Entry, L

if TYPE_CHECKING:
    from phyla.caching import CacheExplanation
    from phyla.engine.pool.key import Key
    from phyla.engine.pool.snapshots import Snapshot


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
    entry: Entry[L] | None = field(default=None, repr=False)  # the pool's own: the one lent
    ended: bool = False

    @property
    def lent(self) -> bool:
        """Whether the layers are an entry's own, and not a copy."""
        return self.entry is not None

    def end(self) -> None:
        """Nothing can be had by it any more."""
        self.ended = True
        self.layers, self.snapshots, self.entry = None, (), None
