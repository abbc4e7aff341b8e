"""Attention whose output is gated (Qiu et al. 2025, arXiv:2505.06708), as in Qwen3-Next."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
import mlx.nn as nn

from phyla.nn.fusion import Fusable, join_linears
from phyla.nn.outputs import reorder_outputs

if TYPE_CHECKING:
    from collections.abc import Callable

    from phyla.family import AttentionCache, CacheKind
    from phyla.nn.decoder import AttentionShape
    from phyla.nn.rope import Rotation


class GatedAttention(Fusable):
    """Grouped-query attention; each value of its output is multiplied by `sigmoid(gate(x))`.

    `q_proj` gives each head its query and its gate, side by side; queries and keys are normed per
    head before the rotation, gates are not.

    Args:
        dim: width of the hidden states.
        shape: the numbers of the attention; its `qk_norm_eps` is not read.
        norm: makes the norm of a head's queries and keys, of a given width.
    """

    def __init__(
        self, dim: int, shape: AttentionShape, *, norm: Callable[[int], nn.Module]
    ) -> None:
        super().__init__()
        self.shape = shape
        width, kv_width = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        self.q_proj = nn.Linear(dim, 2 * width, bias=shape.bias)
        self.k_proj = nn.Linear(dim, kv_width, bias=shape.bias)
        self.v_proj = nn.Linear(dim, kv_width, bias=shape.bias)
        self.o_proj = nn.Linear(width, dim, bias=shape.output_bias)
        self.q_norm, self.k_norm = norm(shape.head_dim), norm(shape.head_dim)
        self.fused = False

    @property
    def cache_kind(self) -> CacheKind:
        """What this block needs remembered."""
        return self.shape.cache_kind

    def fuse(self) -> None:
        """Join the projections into one, `qkvg_proj`: all queries, keys, values, then all gates."""
        if self.fused:
            return
        joined = join_linears([self.q_proj, self.k_proj, self.v_proj])
        if joined is None:
            return
        # Counted in heads, the outputs are query, gate, query, gate, ..., keys, values.
        heads, kv_heads, dim = self.shape.heads, self.shape.kv_heads, self.shape.head_dim
        queries, gates = range(0, 2 * heads, 2), range(1, 2 * heads, 2)
        keys_and_values = range(2 * heads, 2 * (heads + kv_heads))
        reorder_outputs(
            joined,
            [
                head * dim + index
                for head in (*queries, *keys_and_values, *gates)
                for index in range(dim)
            ],
        )
        del self.q_proj, self.k_proj, self.v_proj
        self.qkvg_proj = joined
        self.fused = True

    def __call__(self, x: mx.array, rotation: Rotation, cache: AttentionCache) -> mx.array:
        """Attend over the cache and this chunk; `[B, T, D]` to `[B, T, D]`."""
        rows, length, _ = x.shape
        queries, keys, values, gates = self._project(x)
        queries, keys = rotation(self.q_norm(queries)), rotation(self.k_norm(keys))
        out = cache.attend(queries, keys, values, scale=self.shape.head_dim**-0.5)
        out = out * mx.sigmoid(gates)
        return self.o_proj(out.swapaxes(1, 2).reshape(rows, length, -1))

    def _project(self, x: mx.array) -> tuple[mx.array, mx.array, mx.array, mx.array]:
        """Queries, keys, values and gates, each `[B, heads, T, head_dim]`."""
        heads, kv_heads = self.shape.heads, self.shape.kv_heads
        if self.fused:
            joined = self._by_head(self.qkvg_proj(x), self.shape.head_dim)
            queries, keys, values, gates = mx.split(
                joined, [heads, heads + kv_heads, heads + 2 * kv_heads], axis=1
            )
            return queries, keys, values, gates
        queries, gates = mx.split(
            self._by_head(self.q_proj(x), 2 * self.shape.head_dim), 2, axis=-1
        )
        keys = self._by_head(self.k_proj(x), self.shape.head_dim)
        values = self._by_head(self.v_proj(x), self.shape.head_dim)
        return queries, keys, values, gates

    def _by_head(self, x: mx.array, width: int) -> mx.array:
        rows, length, _ = x.shape
        return x.reshape(rows, length, -1, width).swapaxes(1, 2)
