"""A batch as the model sees it: one cache per layer, behind which each row has its own store.

Rows are stacked for projections and taken apart where something is remembered, so a row attends
over its own tokens only, and neither padding nor masks come into it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import mlx.core as mx
from typing_extensions import assert_never

from phyla.backend import on_cpu
from phyla.engine.attention import attend_one
from phyla.engine.caches import EmptyCache, FullCache, RecurrentCache, SharedCache

if TYPE_CHECKING:
    from collections.abc import Sequence

    from phyla.engine.layers import Layers


class AttentionRows:
    """The stores of one attention layer."""

    def __init__(self, stores: Sequence[FullCache]) -> None:
        self._stores = stores

    def attend(
        self,
        queries: mx.array,
        keys: mx.array,
        values: mx.array,
        *,
        scale: float,
        sinks: mx.array | None = None,
    ) -> mx.array:
        """As `AttentionCache.attend` has it, row by row."""
        count = len(self._stores)
        parts = zip(self._stores, mx.split(keys, count), mx.split(values, count), strict=True)
        for store, row_keys, row_values in parts:
            store.append(row_keys, row_values)
        return _attend_stored(self._stores, queries, scale=scale, sinks=sinks)


class SharedRows:
    """The stores of one layer that attends over another's."""

    def __init__(self, stores: Sequence[SharedCache]) -> None:
        self._stores = stores

    def attend(self, queries: mx.array, *, scale: float, sinks: mx.array | None = None) -> mx.array:
        """As `SharedAttentionCache.attend` has it, row by row."""
        sources = [store.source for store in self._stores]
        return _attend_stored(sources, queries, scale=scale, sinks=sinks)


def _attend_stored(
    stores: Sequence[FullCache], queries: mx.array, *, scale: float, sinks: mx.array | None
) -> mx.array:
    if queries.shape[2] == 1 and sinks is None and on_cpu():
        return attend_one(queries, [store.seen(1) for store in stores], scale=scale)
    outs = [
        store.attend_stored(row, scale=scale, sinks=sinks)
        for store, row in zip(stores, mx.split(queries, len(stores)), strict=True)
    ]
    return mx.concatenate(outs)


class StateRows:
    """The stores of one recurrent layer; states are rows already, so they are stacked."""

    def __init__(self, stores: Sequence[RecurrentCache]) -> None:
        self._stores = stores

    @property
    def states(self) -> tuple[mx.array, ...]:
        """The states of all rows, each `[B, *shape]`."""
        return tuple(
            mx.concatenate(list(rows))
            for rows in zip(*(s.states for s in self._stores), strict=True)
        )

    def advance(self, *states: mx.array, tokens: int) -> None:
        """Give each row its own states."""
        for row, store in enumerate(self._stores):
            store.advance(*(state[row : row + 1] for state in states), tokens=tokens)


LayerRows: TypeAlias = AttentionRows | SharedRows | StateRows | EmptyCache


def stack(batch: Sequence[Layers]) -> list[LayerRows]:
    """One cache per layer over the layers of several sequences of one model."""
    rows: list[LayerRows] = []
    for stores in zip(*(layers.stores for layers in batch), strict=True):
        match stores[0]:
            case FullCache():
                rows.append(AttentionRows([s for s in stores if isinstance(s, FullCache)]))
            case SharedCache():
                rows.append(SharedRows([s for s in stores if isinstance(s, SharedCache)]))
            case RecurrentCache():
                rows.append(StateRows([s for s in stores if isinstance(s, RecurrentCache)]))
            case EmptyCache():
                rows.append(stores[0])
            case _:
                assert_never(stores[0])
    return rows
