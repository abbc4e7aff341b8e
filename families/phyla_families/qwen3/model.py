"""Qwen3 (Yang et al. 2025, arXiv:2505.09388): a Llama whose queries and keys are normed per head.

The MoE form replaces the MLP of some layers by routed experts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from phyla.nn import AttentionShape, CausalDecoder, DecoderLayer, GatedMLP, SparseMoE
from phyla_families.qwen3.multimodal import VlDecoder
from phyla_families.qwen3.vision import VisionTower

if TYPE_CHECKING:
    from phyla_families.qwen3.config import Config
    from phyla_families.qwen3.vl_config import VlConfig


def build(config: Config) -> CausalDecoder:
    """The model that the config describes, with unset weights."""
    return CausalDecoder.from_config(config, _layers(config))


def build_vl(config: VlConfig) -> CausalDecoder:
    """Qwen3-VL: the same, and a vision tower where the checkpoint has one."""
    if config.vision is None:
        return build(config)
    model = VlDecoder.from_config(config, _layers(config))
    model.visual = VisionTower(config.vision)
    return model


def _layers(config: Config) -> list[DecoderLayer]:
    return [_layer(config, index) for index in range(config.num_hidden_layers)]


def _layer(config: Config, index: int) -> DecoderLayer:
    attention = AttentionShape.from_config(config, qk_norm=True, window=config.window(index))
    mlp = _experts(config) if config.is_sparse(index) else GatedMLP.from_config(config)
    return DecoderLayer(config.hidden_size, attention, mlp, norm_eps=config.rms_norm_eps)


def _experts(config: Config) -> SparseMoE:
    assert config.num_experts is not None
    assert config.num_experts_per_tok is not None
    assert config.moe_intermediate_size is not None
    return SparseMoE(
        config.hidden_size,
        config.moe_intermediate_size,
        experts=config.num_experts,
        per_token=config.num_experts_per_tok,
        normalize=config.norm_topk_prob,
    )
