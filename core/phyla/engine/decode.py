"""Turns token ids into token ids. Knows nothing of text, chat templates or families."""

from __future__ import annotations

from collections import deque
from copy import copy
from typing import TYPE_CHECKING

import mlx.core as mx

from phyla.engine.caches import Store, allocate
from phyla.errors import CancelledError
from phyla.family import Step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from phyla.engine.sampling import Sampled, Sampler
    from phyla.family import Model, Tap


class Cursor:
    """One sequence in a model: its stores, and how many tokens they were fed.

    Args:
        model: the forward pass.
        dtype: the activations' type, which the stores keep.
        extent: how many tokens the sequence may reach; fixed for its life.
        reserve: how many tokens to make room for at once.
    """

    def __init__(self, model: Model, *, dtype: mx.Dtype, extent: int, reserve: int) -> None:
        self._model = model
        self._dtype = dtype
        self._extent = extent
        self.stores: list[Store] = allocate(model.cache_kinds(), dtype)
        self.length = 0
        for store in self.stores:
            store.reserve(reserve)

    def prefill(
        self, ids: Sequence[int], *, chunk: int, cancelled: Callable[[], bool] = lambda: False
    ) -> mx.array:
        """Feed a prompt in chunks; return the logits `[V]` after its last token, in float32.

        Raises:
            CancelledError: `cancelled()` turned true between two chunks; what was fed stays.
        """
        for start in range(0, len(ids), chunk):
            if cancelled():
                raise CancelledError(f"Cancelled after {start} of {len(ids)} prompt tokens.")
            piece = mx.array([list(ids[start : start + chunk])], dtype=mx.int32)
            hidden = self._forward(piece)
            if start + chunk < len(ids):
                # Only the stores are evaluated, so what follows the last layer's keys and values
                # is never computed for these tokens.
                mx.eval([array for store in self.stores for array in store.arrays])
            else:
                return self._last_logits(hidden)
        raise AssertionError("a prompt holds at least one token")

    def advance(self, token: mx.array) -> mx.array:
        """Feed one token, a scalar that need not be computed yet; return the logits `[V]` after."""
        return self._last_logits(self._forward(token.astype(mx.int32).reshape(1, 1)))

    def trace(self, ids: Sequence[int], tap: Tap) -> mx.array:
        """Feed all of `ids` at once; return the logits `[T, V]` of every position."""
        hidden = self._forward(mx.array([list(ids)], dtype=mx.int32), tap)
        return self._model.logits(hidden)[0].astype(mx.float32)

    def _forward(self, ids: mx.array, tap: Tap | None = None) -> mx.array:
        count = ids.shape[1]
        positions = mx.arange(self.length, self.length + count, dtype=mx.int32)[None]
        step = Step(ids=ids, positions=positions, extents=(self._extent,))
        if tap is not None:
            step = Step(ids=ids, positions=positions, extents=(self._extent,), tap=tap)
        self.length += count
        # An embedding kept in the file's own type would otherwise set the type of all that follows.
        hidden = self._model.embed(step).astype(self._dtype)
        return self._model(hidden, step, self.stores)

    def _last_logits(self, hidden: mx.array) -> mx.array:
        return self._model.logits(hidden[:, -1])[0].astype(mx.float32)


class Decoding:
    """Samples tokens one after another, at most `limit`; the caller stops by leaving the loop.

    The next step's graph is built while the current one runs. With `run_ahead` it is also started
    before the caller sees the current token, which keeps a GPU busy and costs one step after the
    last token; a CPU has nothing to hide and starts it when it is wanted. A sampler that has to see
    the token itself gets no next step before the caller has the current one.
    """

    def __init__(
        self, cursor: Cursor, logits: mx.array, sampler: Sampler, *, limit: int, run_ahead: bool
    ) -> None:
        self._cursor = cursor
        self._logits = logits
        self._sampler = sampler
        self._limit = limit
        self._run_ahead = run_ahead
        self._forced: deque[int] = deque()

    def force(self, ids: Sequence[int]) -> None:
        """Make these the next tokens, whatever the model would say."""
        self._forced.extend(ids)

    def __iter__(self) -> Iterator[Sampled]:
        # The sampler from before the pending token was drawn, in case another is to take its place.
        before, pending = self._draw(self._logits)
        mx.async_eval(*pending.arrays)
        for count in range(1, self._limit + 1):
            if self._forced:
                self._sampler = before
                pending = self._sampler.sample(self._logits, forced=self._forced.popleft())
            elif count > 1 and not self._run_ahead:
                mx.async_eval(*pending.arrays)
            current = pending
            if self._sampler.waits:
                yield current
            if count < self._limit:
                self._logits = self._cursor.advance(current.token)
                before, pending = self._draw(self._logits)
                if self._run_ahead:
                    mx.async_eval(*pending.arrays)
            if not self._sampler.waits:
                yield current

    def _draw(self, logits: mx.array) -> tuple[Sampler, Sampled]:
        before = copy(self._sampler)
        return before, self._sampler.sample(logits)
