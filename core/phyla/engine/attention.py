"""Attention of new queries over stored keys: masks, windows, and the form that is fast here.

The last T of N stored positions are the queries' own; each sees itself and what came before, the
last `window` of it if there is a window.
"""

from __future__ import annotations

import math

import mlx.core as mx

from phyla.backend import on_cpu

# On a CPU queries go in blocks: a block skips the keys that come after it, for a prompt read in one
# go almost half of the work, and its scores stay in the cache.
_QUERY_BLOCK = 64

# Below this many keys one query is better served by the single fused operation.
_KEYS_FOR_PARTS = 512

_LOG2_E = math.log2(math.e)


def attend(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    *,
    scale: float,
    window: int | None = None,
    sinks: mx.array | None = None,
) -> mx.array:
    """Causal attention.

    Args:
        queries: `[B, heads, T, key_dim]`.
        keys: `[B, kv_heads, N, key_dim]`, of which the last T belong to the queries.
        values: `[B, kv_heads, N, value_dim]`.
        scale: multiplies the scores.
        window: how many positions a query sees, itself included.
        sinks: `[heads]` logits that take part in the softmax and carry no value.

    Returns:
        `[B, heads, T, value_dim]`.
    """
    count, stored = queries.shape[2], keys.shape[2]
    if window is not None and stored > window + count - 1:
        keys, values = keys[:, :, -(window + count - 1) :], values[:, :, -(window + count - 1) :]
        stored = window + count - 1
    windowed = window is not None and stored > window
    in_parts = count > 1 or stored >= _KEYS_FOR_PARTS
    if on_cpu() and in_parts and sinks is None:
        limit = window if windowed else None
        blocks = [
            _softmax_of_parts(
                queries[:, :, start : start + _QUERY_BLOCK],
                *_seen(keys, values, stored - count + start, count - start, limit),
                scale=scale,
                window=limit,
            )
            for start in range(0, count, _QUERY_BLOCK)
        ]
        return blocks[0] if len(blocks) == 1 else mx.concatenate(blocks, axis=2)
    mask: mx.array | str | None = None
    if count > 1:
        mask = _visible(count, stored, window) if windowed else "causal"
    return mx.fast.scaled_dot_product_attention(
        queries, keys, values, scale=scale, mask=mask, sinks=sinks
    )


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


def _visible(count: int, stored: int, window: int | None) -> mx.array:
    """`[T, N]` booleans: which stored positions each query sees."""
    place = mx.arange(stored)
    query = mx.arange(stored - count, stored)[:, None]
    seen = place <= query
    return seen if window is None else seen & (place > query - window)
