"""The stores behind the cache kinds: keys and values, windows of them, states.

One store serves one layer of one sequence, and owns the truth about how many tokens it holds. What
the queries see of it is worked out in `phyla.engine.attention`; what the layers of a sequence do
together, in `phyla.engine.layers`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

import mlx.core as mx

from phyla.engine.attention import attend
from phyla.engine.tape import BLOCK, PLAIN, Tape, own

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from phyla.engine.tape import Codec
    from phyla.family import Full, Recurrent, Sliding

Blocks: TypeAlias = "Sequence[tuple[int, int]]"

# What a window keeps beyond its own width, so that a few tokens can be taken back.
MARGIN = 64


class Store(Protocol):
    """What a sequence needs of every layer's store."""

    @property
    def length(self) -> int:
        """How many tokens the layer was fed."""
        ...

    @property
    def floor(self) -> int:
        """The shortest length it can be cut to; it can be cut to any from there to its own."""
        ...

    @property
    def arrays(self) -> Sequence[mx.array]:
        """What has to be evaluated for it to be up to date."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes of its buffers."""
        ...

    def reserve(self, tokens: int) -> None:
        """Make the next buffers just large enough for `tokens` tokens in all."""
        ...

    def cut(self, length: int) -> None:
        """Forget what came after the first `length` tokens."""
        ...

    def compact(self) -> None:
        """Give back memory that is kept for what is to come."""
        ...


@dataclass(frozen=True)
class Window:
    """What a sliding store holds of a moment: the latest keys and values, from `start` on."""

    start: int
    keys: Tape
    values: Tape

    @property
    def arrays(self) -> list[mx.array]:
        return [*self.keys.arrays, *self.values.arrays]


class FullCache:
    """Keys and values of every token.

    Args:
        kind: the shapes.
        keys: how keys are kept.
        values: how values are kept.
    """

    # How many of the latest tokens suffice; None where all are needed.
    _needed: int | None = None
    _window: int | None = None

    def __init__(self, kind: Full | Sliding, keys: Codec = PLAIN, values: Codec = PLAIN) -> None:
        self.kind = kind
        self.length = 0
        # The token that the buffers begin with; later than the first only where a window slides.
        self.start = 0
        self.blocks: Blocks = ()
        self._reserved = 0
        self._keys = Tape(keys)
        self._values = Tape(values)

    def attend(
        self,
        queries: mx.array,
        keys: mx.array,
        values: mx.array,
        *,
        scale: float,
        sinks: mx.array | None = None,
    ) -> mx.array:
        """As `AttentionCache.attend` has it."""
        self.append(keys, values)
        return self.attend_stored(queries, scale=scale, sinks=sinks)

    def append(self, keys: mx.array, values: mx.array) -> None:
        """Store a chunk's keys and values."""
        held, count = self.length - self.start, keys.shape[2]
        if held + count > self._keys.capacity:
            held = self._make_room(keys, values)
        self._keys.write(held, keys)
        self._values.write(held, values)
        self.length += count

    def seen(self, count: int) -> tuple[mx.array, mx.array]:
        """The keys and values that the last `count` tokens see, theirs included."""
        stop = self.length - self.start
        start = 0
        if self._window is not None:
            start = max(0, stop - (self._window + count - 1))
        return self._keys.read(start, stop), self._values.read(start, stop)

    def attend_stored(
        self, queries: mx.array, *, scale: float, sinks: mx.array | None = None
    ) -> mx.array:
        """Attend over what is stored, the queries' own tokens last, appending nothing."""
        keys, values = self.seen(queries.shape[2])
        return attend(
            queries,
            keys,
            values,
            scale=scale,
            window=self._window,
            blocks=self.blocks if self.kind.bidirectional else (),
            sinks=sinks,
        )

    def reserve(self, tokens: int) -> None:
        self._reserved = tokens

    def _make_room(self, keys: mx.array, values: mx.array) -> int:
        """Room for these as well; returns how many tokens the buffers hold, the oldest dropped."""
        held = self.length - self.start
        kept = held if self._needed is None else min(held, self._needed)
        self.start += held - kept
        capacity = self._capacity(kept + keys.shape[2])
        self._keys.resize(held - kept, held, capacity, keys)
        self._values.resize(held - kept, held, capacity, values)
        return kept

    def _capacity(self, tokens: int) -> int:
        # What is set aside for a sequence is what it may take; growing by half is for the others.
        wanted = self._reserved
        if tokens > wanted:
            wanted = max(tokens, self._keys.capacity + self._keys.capacity // 2)
        return -(-wanted // BLOCK) * BLOCK

    @property
    def floor(self) -> int:
        return 0

    def cut(self, length: int) -> None:
        assert self.floor <= length <= self.length
        self.length = length

    def fork(self, length: int) -> FullCache:
        """A store of the first `length` tokens; the memory is shared until one of both appends."""
        assert self.floor <= length <= self.length
        held = length - self.start
        return self._with(
            self.start, length, self._keys.window(0, held), self._values.window(0, held)
        )

    def mark(self) -> FullCache:
        """The store as it is now; drop it before the next tokens are computed."""
        return self._with(self.start, self.length, self._keys.alias(), self._values.alias())

    def _with(self, start: int, length: int, keys: Tape, values: Tape) -> FullCache:
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__, start=start, length=length, _keys=keys, _values=values)
        return other

    def compact(self) -> None:
        held = self.length - self.start
        spare = self._keys.capacity - held
        dropped = 0 if self._needed is None else max(0, held - self._needed)
        self._reserved = 0
        if dropped or spare > BLOCK + held // 4:
            self.start += dropped
            self._keys = self._keys.copy(dropped, held)
            self._values = self._values.copy(dropped, held)

    def drop(self, start: int, stop: int, turn: Callable[[mx.array, int], mx.array]) -> None:
        """Forget the tokens from `start` up to `stop`; those behind move up.

        `turn(keys, by)` rotates keys to positions that are `by` further on.
        """
        assert 0 <= start <= stop <= self.length
        by, held = stop - start, self.length - self.start
        first, last = max(0, start - self.start), max(0, stop - self.start)
        if last < held:
            self._keys.write(first, turn(self._keys.read(last, held), -by))
            self._values.write(first, self._values.read(last, held))
        self.start = min(self.start, max(start, self.start - by))
        self.length -= by

    @property
    def arrays(self) -> list[mx.array]:
        return [*self._keys.arrays, *self._values.arrays]

    @property
    def nbytes(self) -> int:
        return self._keys.nbytes + self._values.nbytes


class SlidingCache(FullCache):
    """Keys and values of the last `window` tokens; a query sees itself and `window - 1` before.

    A margin of older tokens stays, so that the latest ones can be taken back. The buffers are not a
    ring: what is held lies in order, and slides to the front when the end is reached, which costs a
    copy of the window once in many tokens.
    """

    def __init__(self, kind: Sliding, keys: Codec = PLAIN, values: Codec = PLAIN) -> None:
        super().__init__(kind, keys, values)
        self._window = kind.window
        self._needed = kind.window - 1 + MARGIN

    def _capacity(self, tokens: int) -> int:
        assert self._needed is not None
        most = self._needed + max(BLOCK, self._needed // 2)
        return max(tokens, min(super()._capacity(tokens), most))

    @property
    def floor(self) -> int:
        assert self._window is not None
        if self.start == 0:
            return 0
        # A fresh prefill up to there would see these keys and no others. Where tokens were dropped
        # from the middle less may be held than that.
        return min(self.length, self.start + self._window - 1)

    def snapshot(self) -> Window:
        """What the next tokens will see of this moment."""
        assert self._window is not None
        held = self.length - self.start
        first = max(0, held - (self._window - 1))
        return Window(
            self.start + first, self._keys.copy(first, held), self._values.copy(first, held)
        )

    def at(self, window: Window, length: int) -> FullCache:
        """A store as it was at `length` tokens, when the snapshot was taken."""
        return self._with(window.start, length, window.keys.alias(), window.values.alias())


class RecurrentCache:
    """The states of a recurrent layer, zero before the first token."""

    def __init__(self, kind: Recurrent, dtype: mx.Dtype) -> None:
        self.kind = kind
        self.length = 0
        self._states = tuple(
            mx.zeros((1, *shape), dtype if name is None else getattr(mx, name))
            for shape, name in zip(kind.shapes, kind.dtypes, strict=True)
        )

    def reserve(self, tokens: int) -> None:
        """Nothing to reserve: the size is fixed."""

    @property
    def states(self) -> tuple[mx.array, ...]:
        return self._states

    def advance(self, *states: mx.array, tokens: int) -> None:
        self._states = states
        self.length += tokens

    @property
    def floor(self) -> int:
        """A state cannot be taken back."""
        return self.length

    def cut(self, length: int) -> None:
        assert length == self.length

    def fork(self, length: int) -> RecurrentCache:
        """The same states; they are never written in place."""
        assert length == self.length
        return self.at(self._states, length)

    def at(self, states: tuple[mx.array, ...], length: int) -> RecurrentCache:
        """A store with these states after `length` tokens."""
        other = RecurrentCache.__new__(RecurrentCache)
        other.__dict__.update(self.__dict__, length=length, _states=states)
        return other

    def mark(self) -> RecurrentCache:
        """The store as it is now; states are never written in place."""
        return self.at(self._states, self.length)

    def snapshot(self) -> tuple[mx.array, ...]:
        """The states of this moment, with memory of their own."""
        return tuple(own(state) for state in self._states)

    def compact(self) -> None:
        # A state may be a view of a whole chunk, or of the states of a batch.
        self._states = self.snapshot()

    @property
    def arrays(self) -> list[mx.array]:
        return list(self._states)

    @property
    def nbytes(self) -> int:
        return sum(state.nbytes for state in self._states)


class SharedCache:
    """Attends over what an earlier layer stored in this step and before."""

    arrays: Sequence[mx.array] = ()
    nbytes = 0
    floor = 0

    def __init__(self, source: FullCache) -> None:
        self._source = source

    @property
    def source(self) -> FullCache:
        """The other layer's store."""
        return self._source

    def over(self, made: Mapping[int, FullCache]) -> SharedCache:
        """The same over what its source, by its identity, was made into."""
        return SharedCache(made[id(self._source)])

    def attend(self, queries: mx.array, *, scale: float, sinks: mx.array | None = None) -> mx.array:
        """As `SharedAttentionCache.attend` has it."""
        return self._source.attend_stored(queries, scale=scale, sinks=sinks)

    @property
    def length(self) -> int:
        return self._source.length

    def reserve(self, tokens: int) -> None:
        """Nothing to reserve: the other layer stores."""

    def cut(self, length: int) -> None:
        """Nothing to cut: the other layer stores."""

    def compact(self) -> None:
        """Nothing to give back: the other layer stores."""


class EmptyCache:
    """The store of a layer that remembers nothing."""

    arrays: Sequence[mx.array] = ()
    nbytes = 0
    floor = 0
    length = 0

    def reserve(self, tokens: int) -> None:
        """Nothing to reserve."""

    def cut(self, length: int) -> None:
        """Nothing to cut."""

    def compact(self) -> None:
        """Nothing to give back."""
