"""Attention of new queries over stored keys: masks, windows, and the form that is fast here.

The last T of N stored positions are the queries' own; each sees itself and what came before, the
last `window` of it if there is a window.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import mlx.core as mx

from phyla.backend import on_cpu

if TYPE_CHECKING:
    from collections.abc import Sequence

# On a CPU queries go in blocks: a block skips the keys that come after it, for a prompt read in one
# go almost half of the work, and its scores stay in the cache.
_QUERY_BLOCK = 64

# From so many keys on it pays to build a softmax out of plain operations.
_KEYS_FOR_PARTS = 512

_LOG2_E = math.log2(math.e)


def attend(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    *,
    scale: float,
    window: int | None = None,
    blocks: Sequence[tuple[int, int]] = (),
    sinks: mx.array | None = None,
) -> mx.array:
    """Causal attention.

    Args:
        queries: `[B, heads, T, key_dim]`.
        keys: `[B, kv_heads, N, key_dim]`, of which the last T belong to the queries.
        values: `[B, kv_heads, N, value_dim]`.
        scale: multiplies the scores.
        window: how many positions a query sees, itself included.
        blocks: `(start, stop)` among the T queries; those of one block see one another, also later
            ones, and what is ahead is not bounded by the window.
        sinks: `[heads]` logits that take part in the softmax and carry no value.

    Returns:
        `[B, heads, T, value_dim]`.
    """
    count, stored = queries.shape[2], keys.shape[2]
    if sinks is not None:
        sinks = sinks.astype(queries.dtype)  # weights may be kept in a wider type
    if window is not None and stored > window + count - 1:
        keys, values = keys[:, :, -(window + count - 1) :], values[:, :, -(window + count - 1) :]
        stored = window + count - 1
    windowed = window is not None and stored > window
    if on_cpu() and queries.shape[0] == count == 1 and sinks is None:
        return attend_one(queries, [(keys, values)], scale=scale)
    if on_cpu() and sinks is None and not blocks:
        limit = window if windowed else None
        outs = [
            _softmax_of_parts(
                queries[:, :, start : start + _QUERY_BLOCK],
                *_seen(keys, values, stored - count + start, count - start, limit),
                scale=scale,
                window=limit,
            )
            for start in range(0, count, _QUERY_BLOCK)
        ]
        return outs[0] if len(outs) == 1 else mx.concatenate(outs, axis=2)
    mask: mx.array | str | None = None
    if blocks:
        mask = _visible(count, stored, window if windowed else None, blocks)
    elif count > 1:
        mask = _visible(count, stored, window) if windowed else "causal"
    return mx.fast.scaled_dot_product_attention(
        queries, keys, values, scale=scale, mask=mask, sinks=sinks
    )


def attend_one(
    queries: mx.array, rows: Sequence[tuple[mx.array, mx.array]], *, scale: float
) -> mx.array:
    """Attention of one query for each of several sequences, on a CPU.

    What can be done for all rows at once is, since there an operation costs more than its work.

    Args:
        queries: `[B, heads, 1, key_dim]`.
        rows: per row the keys `[1, kv_heads, N, key_dim]` and values that the query sees.
        scale: multiplies the scores.

    Returns:
        `[B, heads, 1, value_dim]`.
    """
    count, heads, _, dim = queries.shape
    grouped = (queries * scale).reshape(count, rows[0][0].shape[1], -1, 1, dim)
    each = [grouped] if count == 1 else mx.split(grouped, count)
    outs = [
        (_few if keys.shape[2] < _KEYS_FOR_PARTS else _many)(query, keys, values)
        for query, (keys, values) in zip(each, rows, strict=True)
    ]
    out = outs[0] if count == 1 else mx.concatenate(outs)
    return out.reshape(count, heads, 1, -1)


def _few(query: mx.array, keys: mx.array, values: mx.array) -> mx.array:
    """`[1, kv_heads, group, 1, key_dim]` over few keys, to the same with `value_dim`."""
    # One row at a time a product is quicker than for a few together, which a BLAS makes threads for.
    scores = query @ mx.expand_dims(keys, 2).swapaxes(-1, -2)
    return mx.softmax(scores, axis=-1, precise=True) @ mx.expand_dims(values, 2)


def _many(query: mx.array, keys: mx.array, values: mx.array) -> mx.array:
    """`[1, kv_heads, group, 1, key_dim]` over many keys, to the same with `value_dim`."""
    query = query[:, :, :, 0]
    scores = query @ keys.swapaxes(-1, -2)
    # A power of two costs half of an exponential, which with many keys is more than the operations.
    weights = mx.power(2.0, (scores - scores.max(axis=-1, keepdims=True)) * _LOG2_E)
    out = (weights @ values) / weights.sum(axis=-1, keepdims=True)
    return mx.expand_dims(out, 3)


def _seen(
    keys: mx.array, values: mx.array, first: int, left: int, window: int | None
) -> tuple[mx.array, mx.array]:
    """What a block of queries sees, whose first stands at `first`, with `left` queries to come."""
    end = first + min(_QUERY_BLOCK, left)
    begin = 0 if window is None else max(0, first - window + 1)
    return keys[:, :, begin:end], values[:, :, begin:end]


def _softmax_of_parts(
    queries: mx.array, keys: mx.array, values: mx.array, *, scale: float, window: int | None
) -> mx.array:
    """Attention out of plain operations: on a CPU a power of two costs half of an exponential."""
    rows, heads, count, _ = queries.shape
    kv_heads, stored = keys.shape[1], keys.shape[2]
    grouped = (queries * (scale * _LOG2_E)).reshape(rows, kv_heads, -1, queries.shape[3])
    scores = grouped @ keys.swapaxes(-1, -2)  # (B, kv_heads, group * T, N)
    if count > 1:
        hidden = mx.where(_visible(count, stored, window), 0.0, -math.inf).astype(scores.dtype)
        by_query = scores.reshape(rows, kv_heads, -1, count, stored) + hidden
        scores = by_query.reshape(scores.shape)
    weights = mx.power(2.0, scores - scores.max(axis=-1, keepdims=True))
    out = (weights @ values) / weights.sum(axis=-1, keepdims=True)
    return out.reshape(rows, heads, count, values.shape[3])


def _visible(
    count: int, stored: int, window: int | None, blocks: Sequence[tuple[int, int]] = ()
) -> mx.array:
    """`[T, N]` booleans: which stored positions each query sees."""
    place = mx.arange(stored)
    query = mx.arange(stored - count, stored)[:, None]
    seen = place <= query
    for start, stop in blocks:
        first, end = stored - count + start, stored - count + stop
        seen = seen | ((query >= first) & (query < end) & (place >= first) & (place < end))
    return seen if window is None else seen & (place > query - window)
