"""MiniCPM (Hu et al. 2024, arXiv:2404.06395): a Llama with muP scalings; MiniCPM5 is without."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from phyla.nn import AttentionShape, CausalDecoder, DecoderLayer, GatedMLP

if TYPE_CHECKING:
    from phyla.family import DecoderConfig
    from phyla_families.minicpm.config import Config, LlamaConfig


def build(config: Config) -> CausalDecoder:
    """MiniCPM 1 to 4.1: scaled embeddings, residual branches and head (tied heads too)."""
    return CausalDecoder.from_config(
        config,
        _layers(config, residual_scale=config.scale_depth / math.sqrt(config.num_hidden_layers)),
        embedding_scale=config.scale_emb,
        head_scale=config.dim_model_base / config.hidden_size,
    )


def build_llama(config: LlamaConfig) -> CausalDecoder:
    """MiniCPM5: no scalings."""
    return CausalDecoder.from_config(config, _layers(config, residual_scale=1.0))


def _layers(config: DecoderConfig, *, residual_scale: float) -> list[DecoderLayer]:
    attention = AttentionShape.from_config(config)
    return [
        DecoderLayer(
            config.hidden_size,
            attention,
            GatedMLP.from_config(config),
            norm_eps=config.rms_norm_eps,
            residual_scale=residual_scale,
        )
        for _ in range(config.num_hidden_layers)
    ]
