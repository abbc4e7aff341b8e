"""The stores behind the cache kinds: keys and values in reserved blocks, windows, states.

One store serves one layer of one sequence, and owns the truth about how many tokens it holds.
What the queries see of it is worked out in `phyla.engine.attention`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import mlx.core as mx
from typing_extensions import assert_never

from phyla.engine.attention import attend
from phyla.family import CacheKind, Full, NoCache, Recurrent, SharedWith, Sliding

if TYPE_CHECKING:
    from collections.abc import Sequence

# Buffers grow by at least this many tokens, and by half, so that growing stays rare.
_BLOCK = 256


class FullCache:
    """Keys and values of every token, in buffers `[1, heads, capacity, dim]`."""

    def __init__(self, kind: Full) -> None:
        self.kind = kind
        self.length = 0
        self._reserved = 0
        self._keys: mx.array | None = None
        self._values: mx.array | None = None

    def reserve(self, tokens: int) -> None:
        """Make the next buffer large enough for `tokens` tokens in all."""
        self._reserved = max(self._reserved, tokens)

    def attend(
        self,
        queries: mx.array,
        keys: mx.array,
        values: mx.array,
        *,
        scale: float,
        sinks: mx.array | None = None,
    ) -> mx.array:
        stored_keys, stored_values = self._append(keys, values)
        return attend(queries, stored_keys, stored_values, scale=scale, sinks=sinks)

    def attend_stored(
        self, queries: mx.array, *, scale: float, sinks: mx.array | None = None
    ) -> mx.array:
        """Attend over what is stored, appending nothing."""
        assert self._keys is not None
        assert self._values is not None
        keys, values = self._keys[:, :, : self.length], self._values[:, :, : self.length]
        return attend(queries, keys, values, scale=scale, sinks=sinks)

    def _append(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        end = self.length + keys.shape[2]
        self._keys = self._fit(self._keys, keys, end)
        self._values = self._fit(self._values, values, end)
        self._keys[:, :, self.length : end] = keys
        self._values[:, :, self.length : end] = values
        self.length = end
        return self._keys[:, :, :end], self._values[:, :, :end]

    def _fit(self, buffer: mx.array | None, new: mx.array, end: int) -> mx.array:
        """A buffer that holds `end` tokens: this one, or a longer copy."""
        held = 0 if buffer is None else buffer.shape[2]
        if buffer is not None and end <= held:
            return buffer
        wanted = max(end, self._reserved, held + held // 2)
        capacity = -(-wanted // _BLOCK) * _BLOCK
        rows, heads, _, dim = new.shape
        blank = mx.zeros((rows, heads, capacity - held, dim), new.dtype)
        return blank if buffer is None else mx.concatenate([buffer, blank], axis=2)

    @property
    def arrays(self) -> list[mx.array]:
        """The buffers, for evaluation."""
        return [buffer for buffer in (self._keys, self._values) if buffer is not None]

    @property
    def nbytes(self) -> int:
        return sum(buffer.nbytes for buffer in self.arrays)


class SlidingCache:
    """Keys and values of the last `window` tokens; a query sees itself and `window - 1` before."""

    def __init__(self, kind: Sliding) -> None:
        self.kind = kind
        self.length = 0
        self._keys: mx.array | None = None
        self._values: mx.array | None = None

    def reserve(self, tokens: int) -> None:
        """Nothing to reserve: the window bounds the buffer."""

    def attend(
        self,
        queries: mx.array,
        keys: mx.array,
        values: mx.array,
        *,
        scale: float,
        sinks: mx.array | None = None,
    ) -> mx.array:
        count = keys.shape[2]
        if self._keys is not None and self._values is not None:
            keys = mx.concatenate([self._keys, keys], axis=2)
            values = mx.concatenate([self._values, values], axis=2)
        self.length += count
        self._keys, self._values = self._latest(keys), self._latest(values)
        return attend(queries, keys, values, scale=scale, window=self.kind.window, sinks=sinks)

    def _latest(self, buffer: mx.array) -> mx.array:
        # The next query brings its own key, so one less than the window stays.
        keep = self.kind.window - 1
        held = buffer.shape[2]
        return buffer if held <= keep else buffer[:, :, held - keep :]

    @property
    def arrays(self) -> list[mx.array]:
        """The buffers, for evaluation."""
        return [buffer for buffer in (self._keys, self._values) if buffer is not None]

    @property
    def nbytes(self) -> int:
        return sum(buffer.nbytes for buffer in self.arrays)


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
    def arrays(self) -> list[mx.array]:
        """The states, for evaluation."""
        return list(self._states)

    @property
    def nbytes(self) -> int:
        return sum(state.nbytes for state in self._states)


class SharedCache:
    """Attends over what an earlier layer stored in this step and before."""

    def __init__(self, source: FullCache) -> None:
        self._source = source

    def reserve(self, tokens: int) -> None:
        """Nothing to reserve: the other layer stores."""

    def attend(self, queries: mx.array, *, scale: float, sinks: mx.array | None = None) -> mx.array:
        return self._source.attend_stored(queries, scale=scale, sinks=sinks)

    @property
    def length(self) -> int:
        return self._source.length

    @property
    def arrays(self) -> list[mx.array]:
        """Nothing of its own."""
        return []

    @property
    def nbytes(self) -> int:
        return 0


class EmptyCache:
    """The store of a layer that remembers nothing."""

    length = 0

    def reserve(self, tokens: int) -> None:
        """Nothing to reserve."""

    @property
    def arrays(self) -> list[mx.array]:
        """Nothing."""
        return []

    @property
    def nbytes(self) -> int:
        return 0


Store: TypeAlias = FullCache | SlidingCache | RecurrentCache | SharedCache | EmptyCache


def allocate(kinds: Sequence[CacheKind], dtype: mx.Dtype) -> list[Store]:
    """One empty store per layer, for one sequence."""
    stores: list[Store] = []
    for kind in kinds:
        match kind:
            case Full():
                stores.append(FullCache(kind))
            case Sliding():
                stores.append(SlidingCache(kind))
            case Recurrent():
                stores.append(RecurrentCache(kind, dtype))
            case SharedWith(layer=layer):
                source = stores[layer]
                assert isinstance(source, FullCache)
                stores.append(SharedCache(source))
            case NoCache():
                stores.append(EmptyCache())
            case _:
                assert_never(kind)
    return stores


def token_bytes(kinds: Sequence[CacheKind], itemsize: int) -> int:
    """Bytes that one more token of context costs, beyond windows and fixed states."""
    return sum(
        kind.heads * (kind.key_dim + kind.value_dim) * itemsize
        for kind in kinds
        if isinstance(kind, Full)
    )
