"""Blocks of two layers: causal attention without positions, and a gated MLP.

Two blocks can tell the order of tokens from the causal mask alone (Haviv et al. 2022,
arXiv:2203.16634).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from phyla.family import AttentionCache, CacheKind, Full, Model, NoCache, Step
from phyla.nn import GatedMLP
from phyla_toy.config import Config


class Attention(nn.Module):
    """Multi-head attention on a residual branch; `hidden` is `[B, T, D]`."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads, self.head_dim = config.num_heads, config.head_dim
        width = self.heads * self.head_dim
        self.norm = nn.RMSNorm(config.hidden_size)
        self.q_proj = nn.Linear(config.hidden_size, width, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, width, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, width, bias=False)
        self.o_proj = nn.Linear(width, config.hidden_size, bias=False)

    @property
    def cache_kind(self) -> CacheKind:
        return Full(heads=self.heads, key_dim=self.head_dim, value_dim=self.head_dim)

    def __call__(self, hidden: mx.array, cache: AttentionCache) -> mx.array:
        normed = self.norm(hidden)
        out = cache.attend(
            self._split(self.q_proj(normed)),
            self._split(self.k_proj(normed)),
            self._split(self.v_proj(normed)),
            scale=self.head_dim**-0.5,
        )  # (B, heads, T, head_dim)
        return hidden + self.o_proj(out.swapaxes(1, 2).flatten(2))

    def _split(self, x: mx.array) -> mx.array:
        return x.reshape(*x.shape[:2], self.heads, self.head_dim).swapaxes(1, 2)


class FeedForward(nn.Module):
    """A gated MLP on a residual branch."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(config.hidden_size)
        self.mlp = GatedMLP(config.hidden_size, config.mlp_size)

    @property
    def cache_kind(self) -> CacheKind:
        return NoCache()

    def __call__(self, hidden: mx.array, cache: object) -> mx.array:
        return hidden + self.mlp(self.norm(hidden))


class Toy(Model):
    """The whole model; the embedding serves as the output head too."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.embedding = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = [
            layer
            for _ in range(config.num_blocks)
            for layer in (Attention(config), FeedForward(config))
        ]
        self.norm = nn.RMSNorm(config.hidden_size)

    def cache_kinds(self) -> Sequence[CacheKind]:
        return [layer.cache_kind for layer in self.layers]

    def embed(self, step: Step) -> mx.array:
        return self.embedding(step.ids)

    def __call__(self, hidden: mx.array, step: Step, caches: Sequence[Any]) -> mx.array:
        for index, (layer, cache) in enumerate(zip(self.layers, caches, strict=True)):
            hidden = layer(hidden, cache)
            step.tap(index, hidden)
        return self.norm(hidden)

    def logits(self, hidden: mx.array) -> mx.array:
        return self.embedding.as_linear(hidden)
