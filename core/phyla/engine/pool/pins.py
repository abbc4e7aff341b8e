"""Pins: which prefixes are protected, until when, and which pin takes another one's place."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


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


def replaced(old: Iterable[Pin], new: Iterable[Pin]) -> tuple[Pin, ...]:
    """The new pins, and those of the old ones that they do not replace."""
    new = tuple(new)
    return (*(pin for pin in old if not any(other.replaces(pin) for other in new)), *new)
