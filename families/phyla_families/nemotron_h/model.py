"""Nemotron-H (NVIDIA 2025, arXiv:2504.03624): Mamba-2 blocks, and a few of attention and MLPs.

Every block is `x + mixer(norm(x))` with one mixer. Nemotron 3 (NVIDIA 2025, arXiv:2512.20856) puts
mixtures of experts for the MLPs, in the larger models working in a narrower, latent space. Attention
has no positions: the order of tokens comes from the Mamba blocks.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import mlx.nn as nn
from typing_extensions import assert_never

from phyla.family import AttentionCache, CacheKind, Full, Model, NoCache, Step
from phyla.nn import (
    ExpertLinear,
    Fusable,
    Mamba2,
    Mamba2Shape,
    SigmoidRouter,
    join_linears,
    through_experts,
    weighted_sum,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from phyla_families.nemotron_h.config import Block, Config
    from phyla_families.nemotron_h.config import Experts as ExpertsShape


class NemotronH(Model):
    """Embedding, blocks, norm, head."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.tied = bool(config.tie_word_embeddings)
        self.embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = [Layer(config, block) for block in config.blocks]
        self.norm_f = nn.RMSNorm(config.hidden_size, config.layer_norm_epsilon)
        if not self.tied:
            self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def cache_kinds(self) -> Sequence[CacheKind]:
        return [layer.cache_kind for layer in self.layers]

    def embed(self, step: Step) -> mx.array:
        return self.embeddings(step.ids)

    def __call__(self, hidden: mx.array, step: Step, caches: Sequence[Any]) -> mx.array:
        for index, (layer, cache) in enumerate(zip(self.layers, caches, strict=True)):
            hidden = layer(hidden, cache)
            step.tap(index, hidden)
        return self.norm_f(hidden)

    def logits(self, hidden: mx.array) -> mx.array:
        return self.embeddings.as_linear(hidden) if self.tied else self.lm_head(hidden)


class Layer(nn.Module):
    """A norm and a mixer on a residual branch."""

    def __init__(self, config: Config, block: Block) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(config.hidden_size, config.layer_norm_epsilon)
        self.mixer = _mixer(config, block)

    @property
    def cache_kind(self) -> CacheKind:
        return self.mixer.cache_kind if isinstance(self.mixer, Mamba2 | Attention) else NoCache()

    def __call__(self, x: mx.array, cache: Any) -> mx.array:
        """`[B, T, D]` to `[B, T, D]`."""
        normed = self.norm(x)
        if isinstance(self.mixer, Mamba2 | Attention):
            return x + self.mixer(normed, cache)
        return x + self.mixer(normed)


def _mixer(config: Config, block: Block) -> Mamba2 | Attention | MLP | Experts:
    match block.kind:
        case "mamba":
            return Mamba2(config.hidden_size, _mamba(config))
        case "attention":
            return Attention(config)
        case "mlp":
            assert config.intermediate_size is not None
            return MLP(config.hidden_size, config.intermediate_size, bias=config.mlp_bias)
        case "moe":
            assert block.experts is not None
            return Experts(config.hidden_size, block.experts, bias=config.mlp_bias)
        case _:
            assert_never(block.kind)


def _mamba(config: Config) -> Mamba2Shape:
    assert config.mamba_num_heads is not None
    assert config.mamba_head_dim is not None
    assert config.ssm_state_size is not None
    least, largest = config.time_step_limit
    return Mamba2Shape(
        heads=config.mamba_num_heads,
        head_dim=config.mamba_head_dim,
        groups=config.n_groups,
        state=config.ssm_state_size,
        kernel=config.conv_kernel,
        conv_bias=config.use_conv_bias,
        bias=config.mamba_bias,
        norm_eps=config.layer_norm_epsilon,
        step_limits=(least, math.inf if largest is None else largest),
        state_dtype=config.mamba_ssm_cache_dtype,
    )


class Attention(Fusable):
    """Grouped-query attention without positions."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        assert config.num_attention_heads is not None
        self.heads = config.num_attention_heads
        self.kv_heads = config.num_key_value_heads or self.heads
        self.head_dim = config.head_dim
        dim, bias = config.hidden_size, config.attention_bias
        self.q_proj = nn.Linear(dim, self.heads * self.head_dim, bias=bias)
        self.k_proj = nn.Linear(dim, self.kv_heads * self.head_dim, bias=bias)
        self.v_proj = nn.Linear(dim, self.kv_heads * self.head_dim, bias=bias)
        self.o_proj = nn.Linear(self.heads * self.head_dim, dim, bias=bias)
        self.fused = False

    @property
    def cache_kind(self) -> CacheKind:
        return Full(heads=self.kv_heads, key_dim=self.head_dim, value_dim=self.head_dim)

    def fuse(self) -> None:
        joined = join_linears([self.q_proj, self.k_proj, self.v_proj])
        if joined is not None:
            del self.q_proj, self.k_proj, self.v_proj
            self.qkv_proj = joined
            self.fused = True

    def __call__(self, x: mx.array, cache: AttentionCache) -> mx.array:
        """`[B, T, D]` to `[B, T, D]`."""
        rows, length, _ = x.shape
        joined = (
            self.qkv_proj(x)
            if self.fused
            else mx.concatenate([self.q_proj(x), self.k_proj(x), self.v_proj(x)], axis=-1)
        )
        by_head = joined.reshape(rows, length, -1, self.head_dim).swapaxes(1, 2)
        queries, keys, values = mx.split(by_head, [self.heads, self.heads + self.kv_heads], axis=1)
        out = cache.attend(queries, keys, values, scale=self.head_dim**-0.5)
        return self.o_proj(out.swapaxes(1, 2).reshape(rows, length, -1))


class MLP(nn.Module):
    """`down(relu(up(x))^2)` (So et al. 2021, arXiv:2109.08668)."""

    def __init__(self, dim: int, hidden: int, *, bias: bool) -> None:
        super().__init__()
        self.up_proj = nn.Linear(dim, hidden, bias=bias)
        self.down_proj = nn.Linear(hidden, dim, bias=bias)

    def __call__(self, x: mx.array) -> mx.array:
        """`[..., D]` to `[..., D]`."""
        return self.down_proj(_squared_relu(self.up_proj(x)))


class Experts(nn.Module):
    """A few of many MLPs for each token, beside one that all go through.

    With a latent width the routed experts see a projection of the token, and their weighted sum is
    projected back: once for a token, not for an expert. The router and the shared expert see the
    token itself.
    """

    def __init__(self, dim: int, shape: ExpertsShape, *, bias: bool) -> None:
        super().__init__()
        self.gate = SigmoidRouter(
            dim,
            shape.count,
            per_token=shape.per_token,
            normalize=shape.normalize,
            floor=1e-20,
            scale=shape.scale,
            groups=shape.groups,
            kept_groups=shape.kept_groups,
        )
        self.is_latent = shape.latent is not None
        inner = shape.latent or dim
        if self.is_latent:
            self.fc1_latent_proj = nn.Linear(dim, inner, bias=bias)
            self.fc2_latent_proj = nn.Linear(inner, dim, bias=bias)
        self.switch_mlp = ExpertMLPs(shape.count, inner, shape.width)
        self.has_shared = shape.shared_width is not None
        if shape.shared_width is not None:
            self.shared_experts = MLP(dim, shape.shared_width, bias=bias)

    def __call__(self, x: mx.array) -> mx.array:
        """`[B, T, D]` to `[B, T, D]`."""
        tokens = x.reshape(-1, x.shape[-1])
        chosen, weights = self.gate(tokens)
        inner = self.fc1_latent_proj(tokens) if self.is_latent else tokens
        routed = weighted_sum(self.switch_mlp(inner, chosen), weights)
        if self.is_latent:
            routed = self.fc2_latent_proj(routed)
        routed = routed.reshape(x.shape)
        return routed + self.shared_experts(x) if self.has_shared else routed


class ExpertMLPs(nn.Module):
    """The MLPs of all experts, stacked."""

    def __init__(self, experts: int, dim: int, hidden: int) -> None:
        super().__init__()
        self.up_proj = ExpertLinear(experts, dim, hidden)
        self.down_proj = ExpertLinear(experts, hidden, dim)

    def __call__(self, x: mx.array, chosen: mx.array) -> mx.array:
        """Tokens `[N, D]` through experts `[N, K]`; gives `[N, K, D]`."""

        def run(rows: mx.array, experts: mx.array, in_order: bool) -> mx.array:
            hidden = _squared_relu(self.up_proj(rows, experts, in_order=in_order))
            return self.down_proj(hidden, experts, in_order=in_order)

        return through_experts(x, chosen, run)


def _squared_relu(x: mx.array) -> mx.array:
    return mx.square(mx.maximum(x, 0))
