"""A decoder of two layers: causal attention without positions, and a gated MLP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from phyla.family import AttentionCache, CacheKind, Full, Model, NoCache, Step
from phyla.nn import GatedMLP
from phyla_toy.config import Config


class Attention(nn.Module):
    """Multi-head attention whose only notion of order is the causal mask."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads, self.head_dim = config.num_heads, config.head_dim
        width = self.heads * self.head_dim
        self.norm = nn.RMSNorm(config.hidden_size)
        self.q_proj = nn.Linear(config.hidden_size, width, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, width, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, width, bias=False)
        self.o_proj = nn.Linear(width, config.hidden_size, bias=False)

    def __call__(self, hidden: mx.array, cache: AttentionCache) -> mx.array:
        normed = self.norm(hidden)
        out = cache.attend(
            self._heads(self.q_proj(normed)),
            self._heads(self.k_proj(normed)),
            self._heads(self.v_proj(normed)),
            scale=self.head_dim**-0.5,
        )  # (B, heads, T, head_dim)
        return hidden + self.o_proj(out.swapaxes(1, 2).flatten(2))

    def _heads(self, x: mx.array) -> mx.array:
        return x.reshape(*x.shape[:2], self.heads, self.head_dim).swapaxes(1, 2)


class Toy(Model):
    """The whole model; the embedding serves as the output head too."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self._config = config
        self.embedding = nn.Embedding(config.vocab_size, config.hidden_size)
        self.attention = Attention(config)
        self.mlp = GatedMLP(config.hidden_size, config.mlp_size)
        self.norm = nn.RMSNorm(config.hidden_size)

    def cache_kinds(self) -> Sequence[CacheKind]:
        head_dim = self._config.head_dim
        return (
            Full(heads=self._config.num_heads, key_dim=head_dim, value_dim=head_dim),
            NoCache(),
        )

    def embed(self, step: Step) -> mx.array:
        return self.embedding(step.ids)

    def __call__(self, hidden: mx.array, step: Step, caches: Sequence[Any]) -> mx.array:
        hidden = self.attention(hidden, caches[0])
        step.tap(0, hidden)
        hidden = hidden + self.mlp(hidden)
        step.tap(1, hidden)
        return self.norm(hidden)

    def logits(self, hidden: mx.array) -> mx.array:
        return self.embedding.as_linear(hidden)
