"""A decoder that mixes gated delta nets with gated attention: Qwen3-Next's and Qwen3.5's shape.

Three of four layers remember a state of fixed size, every fourth all keys and values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
import mlx.nn as nn

from phyla.nn.decoder import AttentionShape, CausalDecoder, GatedMLP
from phyla.nn.delta_net import DeltaNetShape, GatedDeltaNet
from phyla.nn.gated_attention import GatedAttention
from phyla.nn.norms import ZeroCentredRMSNorm
from phyla.nn.rope import Rope
from phyla.nn.shared_expert import SharedExpertMoE

if TYPE_CHECKING:
    from phyla.family import CacheKind
    from phyla.family.hybrid import HybridConfig
    from phyla.nn.rope import Rotation


class HybridDecoder(CausalDecoder):
    """Embedding, hybrid layers, final norm, head.

    Args:
        config: its keys; `layer_types` says what each layer is.
    """

    def __init__(self, config: HybridConfig) -> None:
        super().__init__(
            vocab_size=config.vocab_size,
            dim=config.hidden_size,
            layers=[HybridLayer(config, index) for index in range(config.num_hidden_layers)],
            rope=Rope(config.rope, config.head_dim, config.max_position_embeddings),
            norm_eps=config.rms_norm_eps,
            tied=config.tied,
        )
        self.norm = _norm(config, config.hidden_size)


class HybridLayer(nn.Module):
    """Pre-norm delta net or attention, then pre-norm MLP or experts.

    Args:
        config: its keys.
        index: which layer it is.
    """

    def __init__(self, config: HybridConfig, index: int) -> None:
        super().__init__()
        dim = config.hidden_size
        self.is_linear = config.layer_types[index] == "linear_attention"
        self.input_layernorm = _norm(config, dim)
        if self.is_linear:
            self.linear_attn = GatedDeltaNet(dim, _delta_net(config))
        else:
            self.self_attn = GatedAttention(
                dim, AttentionShape.from_config(config), norm=lambda width: _norm(config, width)
            )
        self.post_attention_layernorm = _norm(config, dim)
        self.mlp = _experts(config) if config.is_sparse(index) else GatedMLP.from_config(config)

    @property
    def cache_kind(self) -> CacheKind:
        """What this layer needs remembered."""
        mixer = self.linear_attn if self.is_linear else self.self_attn
        return mixer.cache_kind

    def __call__(self, x: mx.array, rotation: Rotation, cache: Any) -> mx.array:
        """`[B, T, D]` to `[B, T, D]`."""
        normed = self.input_layernorm(x)
        if self.is_linear:
            x = x + self.linear_attn(normed, cache)
        else:
            x = x + self.self_attn(normed, rotation, cache)
        return x + self.mlp(self.post_attention_layernorm(x))


def _norm(config: HybridConfig, width: int) -> nn.Module:
    kind = ZeroCentredRMSNorm if config.zero_centred else nn.RMSNorm
    return kind(width, config.rms_norm_eps)


def _delta_net(config: HybridConfig) -> DeltaNetShape:
    return DeltaNetShape(
        key_heads=config.linear_num_key_heads,
        value_heads=config.linear_num_value_heads,
        key_dim=config.linear_key_head_dim,
        value_dim=config.linear_value_head_dim,
        kernel=config.linear_conv_kernel_dim,
        norm_eps=config.rms_norm_eps,
        grouped=config.model_type == "qwen3_next",
    )


def _experts(config: HybridConfig) -> SharedExpertMoE:
    assert config.num_experts is not None
    assert config.num_experts_per_tok is not None
    assert config.moe_intermediate_size is not None
    assert config.shared_expert_intermediate_size is not None
    return SharedExpertMoE(
        config.hidden_size,
        config.moe_intermediate_size,
        shared=config.shared_expert_intermediate_size,
        experts=config.num_experts,
        per_token=config.num_experts_per_tok,
        normalize=config.norm_topk_prob,
    )
