"""Attention with relative positions, of Transformer-XL (Dai et al. 2019, arXiv:1901.02860).

A score is `(q_i + u) . k_j + (q_i + v) . r(i - j)`, with learned `u` and `v` for each head.
"""

from __future__ import annotations

import mlx.core as mx
import mlx.nn as nn
import numpy as np

_LONGEST_WAVE = 10000.0

# Scores of so many queries at once: a long sound needs no square of its length in memory.
_QUERIES = 256


class RelativeAttention(nn.Module):
    """Attention of all frames to the valid ones.

    Args:
        dim: width D.
        heads: their number.
        bias: whether the projections have biases.
    """

    def __init__(self, dim: int, heads: int, *, bias: bool) -> None:
        super().__init__()
        self._heads = heads
        self._scale = (dim // heads) ** -0.5
        self.q_proj = nn.Linear(dim, dim, bias=bias)
        self.k_proj = nn.Linear(dim, dim, bias=bias)
        self.v_proj = nn.Linear(dim, dim, bias=bias)
        self.o_proj = nn.Linear(dim, dim, bias=bias)
        self.relative_k_proj = nn.Linear(dim, dim, bias=False)
        self.bias_u = mx.zeros((heads, dim // heads))
        self.bias_v = mx.zeros((heads, dim // heads))

    def __call__(self, x: mx.array, distances: mx.array, valid: int) -> mx.array:
        """`[T, D]` to `[T, D]`.

        Args:
            x: the frames.
            distances: `distance_table(T, D)`.
            valid: how many are frames of sound. What follows them sees all frames alike.
        """
        length = x.shape[0]
        queries, keys, values, relative = (
            proj(inputs).reshape(inputs.shape[0], self._heads, -1).swapaxes(0, 1)
            for proj, inputs in (
                (self.q_proj, x),
                (self.k_proj, x),
                (self.v_proj, x),
                (self.relative_k_proj, distances),
            )
        )
        by_content = queries + self.bias_u[:, None]
        by_distance = queries + self.bias_v[:, None]
        keys = keys.swapaxes(1, 2)
        outs: list[mx.array] = []
        for start in range(0, length, _QUERIES):
            stop = min(start + _QUERIES, length)
            within = relative[:, length - stop : 2 * length - 1 - start].swapaxes(1, 2)
            scores = by_content[:, start:stop] @ keys
            scores = scores + _shifted(by_distance[:, start:stop] @ within, length)
            scores = (scores * self._scale).astype(mx.float32)
            if valid < length:
                seen = (mx.arange(start, stop)[:, None] < valid) & (mx.arange(length) < valid)
                scores = mx.where(seen, scores, mx.finfo(mx.float32).min)
            outs.append(mx.softmax(scores, axis=-1).astype(x.dtype) @ values)
        out = outs[0] if len(outs) == 1 else mx.concatenate(outs, axis=1)
        return self.o_proj(out.swapaxes(0, 1).reshape(length, -1))


def distance_table(length: int, dim: int) -> mx.array:
    """Sines and cosines, by turns, of the distances from `length - 1` down to `1 - length`.

    Float32 `[2 * length - 1, dim]`.
    """
    speeds = 1 / np.float32(_LONGEST_WAVE) ** (np.arange(0, dim, 2, dtype=np.float32) / dim)
    angles = np.arange(length - 1, -length, -1, dtype=np.float32)[:, None] * speeds
    table = np.stack([np.sin(angles), np.cos(angles)], axis=-1)
    return mx.array(table.reshape(2 * length - 1, dim))


def _shifted(scores: mx.array, length: int) -> mx.array:
    """Scores by distance as scores by key: each row begins one further left than the one above.

    `[heads, Q, length + Q - 1]`, the last row from its first entry on, to `[heads, Q, length]`.
    """
    heads, count, width = scores.shape
    strides = (count * width, width - 1, 1)
    return mx.as_strided(scores, (heads, count, length), strides, count - 1)
