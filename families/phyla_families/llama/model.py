"""Llama (Touvron et al. 2023, arXiv:2302.13971): pre-norm attention and gated MLPs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phyla.nn import AttentionShape, CausalDecoder, DecoderLayer, GatedMLP

if TYPE_CHECKING:
    from phyla_families.llama.config import Config


def build(config: Config) -> CausalDecoder:
    """The model that the config describes, with unset weights."""
    attention = AttentionShape.from_config(config)
    layers = [
        DecoderLayer(
            config.hidden_size,
            attention,
            GatedMLP.from_config(config),
            norm_eps=config.rms_norm_eps,
        )
        for _ in range(config.num_hidden_layers)
    ]
    return CausalDecoder.from_config(config, layers)
