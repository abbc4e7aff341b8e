"""The conformer's attention: a frame sees itself and a few before it, by how far they are.

Relative positions are Transformer-XL's (Dai et al., 2019, arXiv:1901.02860): a score is
`q_i . k_j + q_i . r(i - j)`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import mlx.core as mx
import mlx.nn as nn

from phyla_families.gemma4.clipped import ClippedLinear

if TYPE_CHECKING:
    from phyla_families.gemma4.media_config import ConformerConfig

_LONGEST_WAVE = 10000.0


class LocalAttention(nn.Module):
    """Attention over `attention_context_left - 1` frames, in float32, with bounded scores."""

    def __init__(self, config: ConformerConfig) -> None:
        super().__init__()
        dims, clipped = config.hidden_size, config.use_clipped_linears
        head_dim = dims // config.num_attention_heads
        self._shape = (config.num_attention_heads, head_dim)
        self._seen = config.attention_context_left - 1
        self._cap = config.attention_logit_cap
        self._query_scale = head_dim**-0.5 / math.log(2)
        self._key_scale = math.log(1 + math.e) / math.log(2)
        self.q_proj = ClippedLinear(dims, dims, clipped=clipped)
        self.k_proj = ClippedLinear(dims, dims, clipped=clipped)
        self.v_proj = ClippedLinear(dims, dims, clipped=clipped)
        self.post = ClippedLinear(dims, dims, clipped=clipped)
        self.relative_k_proj = nn.Linear(dims, dims, bias=False)
        self.per_dim_scale = mx.zeros((head_dim,))

    def __call__(self, x: mx.array) -> mx.array:
        """`[T, D]` to `[T, D]`."""
        length = x.shape[0]
        queries, keys, values = (
            proj(x).astype(mx.float32).reshape(length, *self._shape)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        scale = mx.logaddexp(self.per_dim_scale.astype(mx.float32), 0.0)  # softplus
        queries = (queries * self._query_scale * scale)[:, None]  # (T, 1, heads, head_dim)

        at = mx.arange(length)[:, None] - mx.arange(self._seen)  # (T, seen)
        before_the_start = at < 0
        at = mx.maximum(at, 0)
        together = keys[at] * self._key_scale + self._distances(x.dtype)
        scores = (queries * together).sum(axis=-1)  # (T, seen, heads)
        scores = mx.tanh(scores / self._cap) * self._cap
        scores = mx.where(before_the_start[:, :, None], -mx.inf, scores)
        weights = mx.softmax(scores, axis=1)
        out = (weights[..., None] * values[at]).sum(axis=1)
        return self.post(out.reshape(length, -1).astype(x.dtype))

    def _distances(self, dtype: mx.Dtype) -> mx.array:
        """The key of each distance, from 0 on, `[seen, heads, head_dim]` float32."""
        heads, head_dim = self._shape
        waves = heads * head_dim // 2
        step = math.log(_LONGEST_WAVE) / max(waves - 1, 1)
        speeds = mx.exp(mx.arange(waves, dtype=mx.float32) * -step)
        angles = mx.arange(self._seen, dtype=mx.float32)[:, None] * speeds
        table = mx.concatenate([mx.sin(angles), mx.cos(angles)], axis=-1).astype(dtype)
        keys = self.relative_k_proj(table).astype(mx.float32)
        return keys.reshape(self._seen, heads, head_dim)
