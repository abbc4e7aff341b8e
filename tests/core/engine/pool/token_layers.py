"""Layers for the pool that hold the tokens themselves, and refuse what real ones could not do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal
from weakref import WeakSet

Kind = Literal["attention", "sliding", "recurrent"]
KINDS: tuple[Kind, ...] = ("attention", "sliding", "recurrent")
WINDOW, MARGIN, STATE = 6, 3, 5


@dataclass(frozen=True, eq=False)
class State:
    """The state of layers that cannot be cut everywhere, after certain tokens."""

    kind: Kind
    tokens: tuple[object, ...]

    @property
    def length(self) -> int:
        return len(self.tokens)

    @property
    def nbytes(self) -> int:
        sizes = {"attention": 0, "sliding": min(len(self.tokens), WINDOW), "recurrent": STATE}
        return sizes[self.kind]


@dataclass(eq=False)
class Tokens:
    """Layers of one attention layer, and of another layer of the given kind."""

    kind: Kind
    tokens: tuple[object, ...] = ()
    floor: int = 0
    capacity: int = 0
    alive: WeakSet[Tokens] = field(default_factory=WeakSet)

    def __post_init__(self) -> None:
        self.alive.add(self)

    @property
    def length(self) -> int:
        return len(self.tokens)

    @property
    def nbytes(self) -> int:
        held = min(self.length, WINDOW + MARGIN) if self.kind == "sliding" else 0
        return self.capacity + (STATE if self.kind == "recurrent" else held)

    def append(self, *tokens: object) -> None:
        self.tokens += tokens
        self.capacity = max(self.capacity, -(-self.length // 8) * 8)
        if self.kind == "recurrent":
            self.floor = self.length
        elif self.kind == "sliding" and self.length > WINDOW + MARGIN:
            self.floor = max(self.floor, self.length - MARGIN)

    def fork(self, length: int) -> Tokens:
        assert self.floor <= length <= self.length, "cut where it cannot be cut"
        return Tokens(self.kind, self.tokens[:length], self.floor, self.capacity, self.alive)

    def cut(self, length: int) -> None:
        assert self.floor <= length <= self.length, "cut where it cannot be cut"
        self.tokens = self.tokens[:length]

    def snapshot(self) -> State:
        return State(self.kind, self.tokens)

    def fork_at(self, snapshot: State) -> Tokens:
        copy = Tokens(self.kind, self.tokens, self.floor, self.capacity, self.alive)
        copy.restore(snapshot)
        return copy

    def restore(self, snapshot: State) -> None:
        assert snapshot.tokens == self.tokens[: snapshot.length], "another sequence's state"
        self.tokens = snapshot.tokens
        self.floor = {"attention": 0, "sliding": max(0, self.length - 1)}.get(
            self.kind, self.length
        )

    def compact(self) -> None:
        self.capacity = self.length


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now
