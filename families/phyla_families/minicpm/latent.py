"""MiniCPM3: MiniCPM's scalings around multi-head latent attention (arXiv:2405.04434)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import mlx.core as mx
import mlx.nn as nn

from phyla.nn import CausalDecoder, GatedMLP, LatentAttention, LatentShape, scaled

if TYPE_CHECKING:
    from phyla.family import AttentionCache, CacheKind
    from phyla.nn import Rotation
    from phyla_families.minicpm.latent_config import LatentConfig

# The norms of the latents have their class's epsilon, not `rms_norm_eps`.
_LATENT_EPS = 1e-6


def build_latent(config: LatentConfig) -> CausalDecoder:
    """The model that the config describes, with unset weights."""
    base = config.dim_model_base
    return CausalDecoder.from_config(
        config,
        [Layer(config) for _ in range(config.num_hidden_layers)],
        embedding_scale=config.scale_emb,
        head_scale=1.0 if base is None else base / config.hidden_size,
    )


class Layer(nn.Module):
    """Pre-norm latent attention and MLP, each on a scaled residual branch."""

    def __init__(self, config: LatentConfig) -> None:
        super().__init__()
        dim, eps, depth = config.hidden_size, config.rms_norm_eps, config.scale_depth
        self.residual_scale = 1.0 if depth is None else depth / math.sqrt(config.num_hidden_layers)
        self.input_layernorm = nn.RMSNorm(dim, eps)
        self.self_attn = LatentAttention(dim, _shape(config))
        self.post_attention_layernorm = nn.RMSNorm(dim, eps)
        self.mlp = GatedMLP.from_config(config)

    @property
    def cache_kind(self) -> CacheKind:
        """What this layer needs remembered."""
        return self.self_attn.cache_kind

    def __call__(self, x: mx.array, rotation: Rotation, cache: AttentionCache) -> mx.array:
        """`[B, T, D]` to `[B, T, D]`."""
        attended = self.self_attn(self.input_layernorm(x), rotation, cache)
        x = x + scaled(attended, self.residual_scale)
        return x + scaled(self.mlp(self.post_attention_layernorm(x)), self.residual_scale)


def _shape(config: LatentConfig) -> LatentShape:
    return LatentShape(
        heads=config.num_attention_heads,
        latent=config.kv_lora_rank,
        query_rank=config.q_lora_rank,
        plain_dim=config.qk_nope_head_dim,
        rotary_dim=config.qk_rope_head_dim,
        value_dim=config.v_head_dim,
        norm_eps=_LATENT_EPS,
        bias=config.attention_bias,
        scale=_scale(config),
    )


def _scale(config: LatentConfig) -> float:
    """By the width of a query; YaRN's `mscale_all_dim` sharpens the attention with its factor."""
    scale = (config.qk_nope_head_dim + config.qk_rope_head_dim) ** -0.5
    rope = config.rope
    if rope.type != "default" and rope.mscale_all_dim and rope.factor and rope.factor > 1:
        scale *= (0.1 * rope.mscale_all_dim * math.log(rope.factor) + 1.0) ** 2
    return scale
