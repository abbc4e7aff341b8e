"""Gemma 4's attention: normed queries, keys and values, scores that are not scaled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import mlx.core as mx
import mlx.nn as nn

from phyla.family import (
    AttentionCache,
    CacheKind,
    Full,
    SharedAttentionCache,
    SharedWith,
    Sliding,
)
from phyla.nn import Fusable, join_linears

if TYPE_CHECKING:
    from phyla.nn import Rotation
    from phyla_families.gemma4.config import Config


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The numbers of one layer's attention.

    Attributes:
        heads: query heads.
        kv_heads: key and value heads; `heads` is a multiple of it.
        head_dim: width of a head.
        window: how many tokens a query sees, itself included; None for all.
        sees_blocks: the tokens of one image see one another.
        keys_are_values: no value projection; a value is the key before its norm and rotation.
        owner: the layer whose keys and values are read; None for a layer with its own.
        bias: whether the projections have one.
        norm_eps: epsilon of the norms.
    """

    heads: int
    kv_heads: int
    head_dim: int
    window: int | None
    sees_blocks: bool
    keys_are_values: bool
    owner: int | None
    bias: bool
    norm_eps: float

    @classmethod
    def from_config(cls, config: Config, layer: int) -> Shape:
        """The shape of layer `layer`."""
        slides = config.slides(layer)
        return cls(
            heads=config.num_attention_heads,
            kv_heads=config.num_key_value_heads if slides else config.num_global_key_value_heads,
            head_dim=config.head_dim if slides else config.global_head_dim,
            window=config.sliding_window if slides else None,
            sees_blocks=config.sees_blocks(layer),
            keys_are_values=config.attention_k_eq_v and not slides,
            owner=config.owner(layer),
            bias=config.attention_bias,
            norm_eps=config.rms_norm_eps,
        )

    @property
    def cache_kind(self) -> CacheKind:
        """What this layer needs remembered."""
        if self.owner is not None:
            return SharedWith(self.owner)
        if self.window is None:
            return Full(
                heads=self.kv_heads,
                key_dim=self.head_dim,
                value_dim=self.head_dim,
                bidirectional=self.sees_blocks,
            )
        return Sliding(
            window=self.window,
            heads=self.kv_heads,
            key_dim=self.head_dim,
            value_dim=self.head_dim,
            bidirectional=self.sees_blocks,
        )


class SharedKeysAttention(nn.Module):
    """Attention over the keys and values of an earlier layer, with queries of its own."""

    def __init__(self, dim: int, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        width = shape.heads * shape.head_dim
        self.q_proj = nn.Linear(dim, width, bias=shape.bias)
        self.o_proj = nn.Linear(width, dim, bias=shape.bias)
        self.q_norm = nn.RMSNorm(shape.head_dim, shape.norm_eps)

    def __call__(self, x: mx.array, rotation: Rotation, cache: SharedAttentionCache) -> mx.array:
        """Attend over what the owner attended over in this step; `x` is `[B, T, D]`."""
        queries = rotation(self.q_norm(_heads(self.q_proj(x), self.shape)))
        return self.o_proj(_joined(cache.attend(queries, scale=1.0)))


class Attention(Fusable):
    """Grouped-query attention (arXiv:2305.13245) with a norm on queries, keys and values.

    The norms of queries and keys have a weight, which also takes the place of the scores' scale;
    the norm of values has none.
    """

    def __init__(self, dim: int, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        width, kv_width = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        self.q_proj = nn.Linear(dim, width, bias=shape.bias)
        self.k_proj = nn.Linear(dim, kv_width, bias=shape.bias)
        if not shape.keys_are_values:
            self.v_proj = nn.Linear(dim, kv_width, bias=shape.bias)
        self.o_proj = nn.Linear(width, dim, bias=shape.bias)
        self.q_norm = nn.RMSNorm(shape.head_dim, shape.norm_eps)
        self.k_norm = nn.RMSNorm(shape.head_dim, shape.norm_eps)
        self.fused = False

    def fuse(self) -> None:
        """Join the projections of the input into one, `qkv_proj`, if they are of one kind."""
        parts = [self.q_proj, self.k_proj]
        if not self.shape.keys_are_values:
            parts.append(self.v_proj)
        joined = join_linears(parts)
        if joined is not None:
            del self.q_proj, self.k_proj
            if not self.shape.keys_are_values:
                del self.v_proj
            self.qkv_proj = joined
            self.fused = True

    def __call__(self, x: mx.array, rotation: Rotation, cache: AttentionCache) -> mx.array:
        """Attend over the cache and this chunk; `x` is `[B, T, D]`."""
        queries, keys, values = self._project(x)
        out = cache.attend(
            rotation(self.q_norm(queries)),
            rotation(self.k_norm(keys)),
            mx.fast.rms_norm(values, None, self.shape.norm_eps),
            scale=1.0,
        )
        return self.o_proj(_joined(out))

    def _project(self, x: mx.array) -> tuple[mx.array, mx.array, mx.array]:
        """Queries, keys and values as they leave the projections, `[B, heads, T, head_dim]`."""
        heads, kv_heads = self.shape.heads, self.shape.kv_heads
        if self.fused:
            joined = _heads(self.qkv_proj(x), self.shape)
            queries, keys = joined[:, :heads], joined[:, heads : heads + kv_heads]
            values = keys if self.shape.keys_are_values else joined[:, heads + kv_heads :]
            return queries, keys, values
        keys = _heads(self.k_proj(x), self.shape)
        values = keys if self.shape.keys_are_values else _heads(self.v_proj(x), self.shape)
        return _heads(self.q_proj(x), self.shape), keys, values


def _heads(x: mx.array, shape: Shape) -> mx.array:
    """`[B, T, heads * head_dim]` to `[B, heads, T, head_dim]`."""
    rows, length, _ = x.shape
    if length == 1:  # the axes to swap are the same in memory
        return x.reshape(rows, -1, 1, shape.head_dim)
    return x.reshape(rows, length, -1, shape.head_dim).swapaxes(1, 2)


def _joined(x: mx.array) -> mx.array:
    """`[B, heads, T, head_dim]` to `[B, T, heads * head_dim]`."""
    rows, _, length, _ = x.shape
    return x.swapaxes(1, 2).reshape(rows, length, -1)
