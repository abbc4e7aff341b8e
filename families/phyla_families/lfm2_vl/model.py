"""LFM2 (Liquid AI 2025, arXiv:2511.23404): gated short convolutions, and attention here and there.

The MoE form replaces the MLP of all but the first layers by routed experts, whose scores are
sigmoids and whose balance comes from a bias that counts in the choice alone. LFM2-VL puts pictures
into the text, as features of a SigLIP 2 tower.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from phyla.family import Features
from phyla.nn import (
    Attention,
    AttentionShape,
    CausalDecoder,
    ExpertMLPs,
    GatedMLP,
    ShortConv,
    SigmoidRouter,
    weighted_sum,
)
from phyla_families.lfm2_vl.projector import Projector
from phyla_families.lfm2_vl.vision import VisionTower

if TYPE_CHECKING:
    from collections.abc import Mapping

    from phyla.family import CacheKind
    from phyla.modality import Modality
    from phyla.nn import Rotation
    from phyla_families.lfm2_vl.config import Config


def build(config: Config) -> CausalDecoder:
    """The model that the config describes, with unset weights; with a tower if it has one."""
    layers = [Layer(config, index) for index in range(config.num_hidden_layers)]
    if config.vision_config is None:
        return CausalDecoder.from_config(config, layers)
    model = VisionLanguageModel.from_config(config, layers)
    model.vision_tower = VisionTower(config.vision_config)
    model.multi_modal_projector = Projector(
        config.vision_config.hidden_size,
        config.projector_hidden_size,
        config.hidden_size,
        factor=config.downsample_factor,
        bias=config.projector_bias,
        layer_norm=config.normalizes_patches,
    )
    return model


class VisionLanguageModel(CausalDecoder):
    """The decoder, and what makes soft tokens of pictures."""

    vision_tower: VisionTower
    multi_modal_projector: Projector

    def media_features(self, modality: Modality, arrays: Mapping[str, mx.array]) -> Features:
        """A row for each soft token of an image, from the arrays of `ImageReader.prepare`."""
        if modality != "image":
            return super().media_features(modality, arrays)
        shapes = [(int(rows), int(columns)) for rows, columns in np.array(arrays["shapes"])]
        levels = arrays["patches"].astype(mx.float32)
        pixels = levels.reshape(levels.shape[0], -1, 3)
        pixels = pixels * arrays["scale"] + arrays["shift"]
        patches = self.vision_tower(pixels.reshape(levels.shape), shapes)
        return Features(self.multi_modal_projector(patches, shapes))


class Layer(nn.Module):
    """Pre-norm short convolution or attention, then pre-norm MLP or experts."""

    def __init__(self, config: Config, index: int) -> None:
        super().__init__()
        dim, eps = config.hidden_size, config.rms_norm_eps
        self.is_attention = config.layer_types[index] == "full_attention"
        self.operator_norm = nn.RMSNorm(dim, eps)
        if self.is_attention:
            self.self_attn = Attention(dim, AttentionShape.from_config(config, qk_norm=True))
        else:
            self.conv = ShortConv(dim, config.conv_L_cache, bias=config.conv_bias)
        self.ffn_norm = nn.RMSNorm(dim, eps)
        self.feed_forward = (
            Experts(config) if config.is_sparse(index) else GatedMLP.from_config(config)
        )

    @property
    def cache_kind(self) -> CacheKind:
        return (self.self_attn if self.is_attention else self.conv).cache_kind

    def __call__(self, x: mx.array, rotation: Rotation, cache: Any) -> mx.array:
        """`[B, T, D]` to `[B, T, D]`."""
        normed = self.operator_norm(x)
        if self.is_attention:
            x = x + self.self_attn(normed, rotation, cache)
        else:
            x = x + self.conv(normed, cache)
        return x + self.feed_forward(self.ffn_norm(x))


class Experts(nn.Module):
    """A few of many gated MLPs for each token."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        assert config.num_experts is not None
        assert config.num_experts_per_tok is not None
        assert config.moe_intermediate_size is not None
        self.gate = SigmoidRouter(
            config.hidden_size,
            config.num_experts,
            per_token=config.num_experts_per_tok,
            bias=config.use_expert_bias,
            normalize=config.norm_topk_prob,
            floor=1e-6,
            scale=config.routed_scaling_factor,
        )
        self.switch_mlp = ExpertMLPs(
            config.num_experts, config.hidden_size, config.moe_intermediate_size
        )

    def __call__(self, x: mx.array) -> mx.array:
        """`[B, T, D]` to `[B, T, D]`."""
        tokens = x.reshape(-1, x.shape[-1])
        chosen, weights = self.gate(tokens)
        return weighted_sum(self.switch_mlp(tokens, chosen), weights).reshape(x.shape)
