"""The blocks of a vision transformer, for pictures of any size side by side.

A batch of pictures is one list of patches `[N, D]` and the pictures' lengths, which add up to N:
each patch attends to all of its own picture and to nothing else, so nothing is padded or masked.

SigLIP (Zhai et al., 2023), NaViT (Dehghani et al., 2023), ViT (Dosovitskiy et al., 2021).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import mlx.core as mx
import mlx.nn as nn  # pyright: ignore[reportMissingTypeStubs]

from phyla.backend import on_cpu
from phyla.nn.activations import gelu_tanh
from phyla.nn.checks import check_least, check_multiple

VisionRotation: TypeAlias = Callable[[mx.array], mx.array]
"""Turns queries or keys by where the patches stand: `[N, heads, head_dim]` to the same shape."""

_LOG2_E = math.log2(math.e)

# On a CPU so many scores are held at once, 128 MiB of them: a large picture needs no square of its
# patches in memory. Smaller pieces gain nothing, and where other programs keep the cores busy every
# product waits for the slower thread, so that few large products are up to twice as fast.
_SCORES = 2**25
_LEAST_QUERIES = 64

# Weights are no smaller there than two to this power of the largest: that changes no sum, and some
# less are numbers that a processor multiplies a hundred times slower (subnormal ones).
_LEAST_POWER = -64.0


def attend_within(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    lengths: Sequence[int],
    *,
    scale: float,
) -> mx.array:
    """Attention of every position to all positions of its own segment.

    Args:
        queries: `[N, heads, D]`.
        keys: likewise.
        values: likewise.
        lengths: of the segments, one behind the other; they add up to N.
        scale: multiplies the scores.

    Returns:
        `[N, heads, D]`.
    """
    outs: list[mx.array] = []
    start = 0
    for size, count in _equal_neighbours(lengths):
        stop = start + size * count
        q, k, v = (
            part[start:stop].reshape(count, size, *part.shape[1:]).swapaxes(1, 2)
            for part in (queries, keys, values)
        )
        out = _on_cpu(q, k, v, scale) if on_cpu() else _fused(q, k, v, scale)
        outs.append(out.swapaxes(1, 2).reshape(stop - start, *queries.shape[1:]))
        start = stop
    return outs[0] if len(outs) == 1 else mx.concatenate(outs)


def _equal_neighbours(lengths: Sequence[int]) -> list[tuple[int, int]]:
    """Segments of one length that follow one another: the length, and how many."""
    groups: list[tuple[int, int]] = []
    for length in lengths:
        if groups and groups[-1][0] == length:
            groups[-1] = (length, groups[-1][1] + 1)
        else:
            groups.append((length, 1))
    return groups


def _fused(queries: mx.array, keys: mx.array, values: mx.array, scale: float) -> mx.array:
    return mx.fast.scaled_dot_product_attention(queries, keys, values, scale=scale)


def _on_cpu(queries: mx.array, keys: mx.array, values: mx.array, scale: float) -> mx.array:
    outs: list[mx.array] = []
    turned = keys.swapaxes(-1, -2)
    pictures, heads, length, _ = queries.shape
    rows = max(_LEAST_QUERIES, _SCORES // (pictures * heads * length))
    for start in range(0, length, rows):
        # A power of two costs half of an exponential there.
        scores = (queries[:, :, start : start + rows] * (scale * _LOG2_E)) @ turned
        scores = mx.maximum(scores - scores.max(axis=-1, keepdims=True), _LEAST_POWER)
        weights = mx.power(2.0, scores)
        outs.append((weights @ values) / weights.sum(axis=-1, keepdims=True))
    return outs[0] if len(outs) == 1 else mx.concatenate(outs, axis=2)


class VisionAttention(nn.Module):
    """Multi-head attention within each picture, with biases.

    Args:
        dims: width D.
        heads: their number.

    Raises:
        ValueError: the width is no multiple of it.
    """

    def __init__(self, dims: int, heads: int) -> None:
        super().__init__()
        check_least("VisionAttention", [("dims", dims), ("heads", heads)])
        check_multiple("VisionAttention", ("dims", dims), ("heads", heads))
        self._heads = heads
        self._scale = (dims // heads) ** -0.5
        self.q_proj = nn.Linear(dims, dims)
        self.k_proj = nn.Linear(dims, dims)
        self.v_proj = nn.Linear(dims, dims)
        self.out_proj = nn.Linear(dims, dims)

    def __call__(
        self, x: mx.array, lengths: Sequence[int], rotate: VisionRotation | None = None
    ) -> mx.array:
        """`[N, D]` to `[N, D]`; `lengths` are the patches of each picture and add up to N."""
        queries, keys, values = (
            proj(x).reshape(x.shape[0], self._heads, -1)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        if rotate is not None:
            queries, keys = rotate(queries), rotate(keys)
        out = attend_within(queries, keys, values, lengths, scale=self._scale)
        return self.out_proj(out.reshape(x.shape))


class VisionMLP(nn.Module):
    """`fc2(gelu(fc1(x)))`, with biases and the tanh approximation of GELU.

    Args:
        dims: width D.
        hidden: width inside.
    """

    def __init__(self, dims: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dims, hidden)
        self.fc2 = nn.Linear(hidden, dims)

    def __call__(self, x: mx.array) -> mx.array:
        """`[..., D]` to `[..., D]`."""
        return self.fc2(gelu_tanh(self.fc1(x)))


class VisionBlock(nn.Module):
    """A pre-norm block: `x += attn(layer_norm1(x)); x += mlp(layer_norm2(x))`.

    Args:
        dims: width D.
        hidden: width of the MLP.
        heads: of the attention.
        eps: of the two LayerNorms.
    """

    def __init__(self, dims: int, hidden: int, heads: int, *, eps: float) -> None:
        super().__init__()
        self.layer_norm1 = nn.LayerNorm(dims, eps=eps)
        self.self_attn = VisionAttention(dims, heads)
        self.layer_norm2 = nn.LayerNorm(dims, eps=eps)
        self.mlp = VisionMLP(dims, hidden)

    def __call__(
        self, x: mx.array, lengths: Sequence[int], rotate: VisionRotation | None = None
    ) -> mx.array:
        """`[N, D]` to `[N, D]`; `lengths` are the patches of each picture and add up to N."""
        x = x + self.self_attn(self.layer_norm1(x), lengths, rotate)
        return x + self.mlp(self.layer_norm2(x))
