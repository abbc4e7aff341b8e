"""Gemma 4's layer: each branch between two norms, then a scale for all that flows on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
import mlx.nn as nn

from phyla.nn import ExpertMLPs, GatedMLP, geglu, weighted_sum
from phyla_families.gemma4.attention import Attention, Shape, SharedKeysAttention
from phyla_families.gemma4.router import Router

if TYPE_CHECKING:
    from phyla.nn import Rotation
    from phyla_families.gemma4.config import Config


class Layer(nn.Module):
    """Attention, a gated MLP, and where the model has them, what the layer's own embedding adds."""

    def __init__(self, config: Config, index: int) -> None:
        super().__init__()
        dim, eps = config.hidden_size, config.rms_norm_eps
        shape = Shape.from_config(config, index)
        self.self_attn = (
            Attention(dim, shape) if shape.owner is None else SharedKeysAttention(dim, shape)
        )
        self.mlp = GatedMLP(dim, config.mlp_width(index), activation=geglu)
        self.input_layernorm = nn.RMSNorm(dim, eps)
        self.post_attention_layernorm = nn.RMSNorm(dim, eps)
        self.pre_feedforward_layernorm = nn.RMSNorm(dim, eps)
        self.post_feedforward_layernorm = nn.RMSNorm(dim, eps)
        width = config.hidden_size_per_layer_input
        if width:
            self.per_layer_input_gate = nn.Linear(dim, width, bias=False)
            self.per_layer_projection = nn.Linear(width, dim, bias=False)
            self.post_per_layer_input_norm = nn.RMSNorm(dim, eps)
        self.layer_scalar = mx.ones((1,))

    def __call__(
        self, x: mx.array, rotation: Rotation, cache: Any, own_input: mx.array | None
    ) -> mx.array:
        """`[B, T, D]` to `[B, T, D]`; `own_input` `[B, T, P]` is this layer's embedding."""
        attended = self.self_attn(self.input_layernorm(x), rotation, cache)
        x = x + self.post_attention_layernorm(attended)
        x = x + self.post_feedforward_layernorm(self.feed_forward(x))
        if own_input is not None:
            gated = geglu(self.per_layer_input_gate(x), own_input)
            x = x + self.post_per_layer_input_norm(self.per_layer_projection(gated))
        return x * self.layer_scalar

    def feed_forward(self, x: mx.array) -> mx.array:
        """What the MLP makes of the residual stream `[B, T, D]`."""
        return self.mlp(self.pre_feedforward_layernorm(x))


class SparseLayer(Layer):
    """A layer with experts beside its MLP, whose outputs are normed and added.

    The router sees the residual stream itself, the experts see it normed.
    """

    def __init__(self, config: Config, index: int) -> None:
        super().__init__(config, index)
        assert config.num_experts is not None
        assert config.top_k_experts is not None
        assert config.moe_intermediate_size is not None
        dim, eps = config.hidden_size, config.rms_norm_eps
        self.router = Router(
            dim, experts=config.num_experts, per_token=config.top_k_experts, norm_eps=eps
        )
        self.experts = ExpertMLPs(
            config.num_experts, dim, config.moe_intermediate_size, activation=geglu
        )
        self.post_feedforward_layernorm_1 = nn.RMSNorm(dim, eps)
        self.pre_feedforward_layernorm_2 = nn.RMSNorm(dim, eps)
        self.post_feedforward_layernorm_2 = nn.RMSNorm(dim, eps)

    def feed_forward(self, x: mx.array) -> mx.array:
        """What the MLP and the experts make of the residual stream `[B, T, D]`."""
        dense = self.post_feedforward_layernorm_1(super().feed_forward(x))
        tokens = x.reshape(-1, x.shape[-1])
        chosen, weights = self.router(tokens)
        out = self.experts(self.pre_feedforward_layernorm_2(tokens), chosen)
        mixed = weighted_sum(out, weights)
        return dense + self.post_feedforward_layernorm_2(mixed.reshape(x.shape))
