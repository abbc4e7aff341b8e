"""The Llama-shaped decoder, in blocks: attention, gated MLP, layer, and the whole.

A family chooses the blocks and their numbers; its model is a `CausalDecoder` built from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import mlx.core as mx
import mlx.nn as nn

from phyla.family import (
    AttentionCache,
    CacheKind,
    DecoderConfig,
    Full,
    Model,
    Sliding,
    Step,
)
from phyla.nn.activations import GatedActivation, swiglu
from phyla.nn.checks import check_least, check_multiple
from phyla.nn.fusion import Fusable, join_linears
from phyla.nn.rope import Rope, Rotation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Self


@dataclass(frozen=True, kw_only=True)
class AttentionShape:
    """The numbers of a grouped-query attention block.

    Attributes:
        heads: query heads.
        kv_heads: key and value heads; `heads` is a multiple of it.
        head_dim: width of a head.
        bias: whether q, k and v have a bias.
        output_bias: whether o has one.
        qk_norm_eps: normalize queries and keys per head (RMS, before the rotation) with this
            epsilon; None for no norm.
        window: how many tokens a query sees, itself included; None for all.

    Raises:
        ValueError: the numbers do not fit together.
    """

    heads: int
    kv_heads: int
    head_dim: int
    bias: bool = False
    output_bias: bool = False
    qk_norm_eps: float | None = None
    window: int | None = None

    def __post_init__(self) -> None:
        names = ("heads", "kv_heads", "head_dim")
        numbers = [(name, getattr(self, name)) for name in names]
        window = [] if self.window is None else [("window", self.window)]
        check_least("AttentionShape", [*numbers, *window])
        check_multiple("AttentionShape", ("heads", self.heads), ("kv_heads", self.kv_heads))

    @classmethod
    def from_config(
        cls, config: DecoderConfig, *, qk_norm: bool = False, window: int | None = None
    ) -> AttentionShape:
        """The shape that a config's shared keys describe."""
        return cls(
            heads=config.num_attention_heads,
            kv_heads=config.num_key_value_heads,
            head_dim=config.head_dim,
            bias=config.attention_bias,
            output_bias=config.attention_bias,
            qk_norm_eps=config.rms_norm_eps if qk_norm else None,
            window=window,
        )

    @property
    def cache_kind(self) -> CacheKind:
        """What this block needs remembered."""
        if self.window is None:
            return Full(heads=self.kv_heads, key_dim=self.head_dim, value_dim=self.head_dim)
        return Sliding(
            window=self.window,
            heads=self.kv_heads,
            key_dim=self.head_dim,
            value_dim=self.head_dim,
        )


class Attention(Fusable):
    """Grouped-query attention (Ainslie et al. 2023, arXiv:2305.13245) with rotary positions.

    It remembers what `shape.cache_kind` says: the keys and values of all tokens, or of a window.

    Args:
        dim: D, width of the hidden states.
        shape: its numbers.
    """

    def __init__(self, dim: int, shape: AttentionShape) -> None:
        super().__init__()
        self.shape = shape
        width = shape.heads * shape.head_dim
        kv_width = shape.kv_heads * shape.head_dim
        self.q_proj = nn.Linear(dim, width, bias=shape.bias)
        self.k_proj = nn.Linear(dim, kv_width, bias=shape.bias)
        self.v_proj = nn.Linear(dim, kv_width, bias=shape.bias)
        self.o_proj = nn.Linear(width, dim, bias=shape.output_bias)
        if shape.qk_norm_eps is not None:
            self.q_norm = nn.RMSNorm(shape.head_dim, shape.qk_norm_eps)
            self.k_norm = nn.RMSNorm(shape.head_dim, shape.qk_norm_eps)
        self.fused = False

    @property
    def cache_kind(self) -> CacheKind:
        """What this block needs remembered."""
        return self.shape.cache_kind

    def fuse(self) -> None:
        """Join the three projections into one, `qkv_proj`, if they are of one kind."""
        joined = join_linears([self.q_proj, self.k_proj, self.v_proj])
        if joined is not None:
            del self.q_proj, self.k_proj, self.v_proj
            self.qkv_proj = joined
            self.fused = True

    def __call__(self, x: mx.array, rotation: Rotation, cache: AttentionCache) -> mx.array:
        """Attend over the cache and this chunk; `[B, T, D]` to `[B, T, D]`."""
        rows, length, _ = x.shape
        queries, keys, values = self._project(x, rotation)
        out = cache.attend(queries, keys, values, scale=self.shape.head_dim**-0.5)
        return self.o_proj(out.swapaxes(1, 2).reshape(rows, length, -1))

    def _project(self, x: mx.array, rotation: Rotation) -> tuple[mx.array, mx.array, mx.array]:
        """Rotated queries, rotated keys, values, each `[B, heads, T, head_dim]`."""
        heads, kv_heads = self.shape.heads, self.shape.kv_heads
        if not self.fused:
            queries = self._heads(self.q_proj(x), heads)
            keys = self._heads(self.k_proj(x), kv_heads)
            values = self._heads(self.v_proj(x), kv_heads)
        else:
            joined = self._heads(self.qkv_proj(x), heads + 2 * kv_heads)
            values = joined[:, heads + kv_heads :]
            if self.shape.qk_norm_eps is None:
                rotated = rotation(joined[:, : heads + kv_heads])
                return rotated[:, :heads], rotated[:, heads:], values
            queries, keys = joined[:, :heads], joined[:, heads : heads + kv_heads]
        if self.shape.qk_norm_eps is not None:
            queries, keys = self.q_norm(queries), self.k_norm(keys)
        return rotation(queries), rotation(keys), values

    def _heads(self, x: mx.array, count: int) -> mx.array:
        rows, length, _ = x.shape
        if length == 1:  # the axes to swap are the same in memory
            return x.reshape(rows, count, 1, self.shape.head_dim)
        return x.reshape(rows, length, count, self.shape.head_dim).swapaxes(1, 2)


class GatedMLP(nn.Module):
    """`down(activation(gate(x), up(x)))` (Shazeer 2020, arXiv:2002.05202).

    Args:
        dim: D, width of the hidden states.
        hidden: width between the projections.
        bias: whether they have one.
        activation: of gate and up.
    """

    def __init__(
        self,
        dim: int,
        hidden: int,
        *,
        bias: bool = False,
        activation: GatedActivation = swiglu,
    ) -> None:
        super().__init__()
        self.activation = activation
        self.gate_proj = nn.Linear(dim, hidden, bias=bias)
        self.up_proj = nn.Linear(dim, hidden, bias=bias)
        self.down_proj = nn.Linear(hidden, dim, bias=bias)

    @classmethod
    def from_config(cls, config: DecoderConfig) -> GatedMLP:
        """The block that a config's shared keys describe."""
        return cls(config.hidden_size, config.intermediate_size, bias=config.mlp_bias)

    def __call__(self, x: mx.array) -> mx.array:
        """`[..., D]` to `[..., D]`."""
        return self.down_proj(self.activation(self.gate_proj(x), self.up_proj(x)))


class DecoderLayer(nn.Module):
    """Pre-norm attention and MLP, each on a residual branch times `residual_scale`.

    Args:
        dim: D, width of the hidden states.
        attention: the numbers of the attention.
        mlp: `[B, T, D]` to `[B, T, D]`.
        norm_eps: epsilon of both norms.
        residual_scale: multiplies what a branch adds.
    """

    def __init__(
        self,
        dim: int,
        attention: AttentionShape,
        mlp: nn.Module,
        *,
        norm_eps: float,
        residual_scale: float = 1.0,
    ) -> None:
        super().__init__()
        self.residual_scale = residual_scale
        self.self_attn = Attention(dim, attention)
        self.mlp = mlp
        self.input_layernorm = nn.RMSNorm(dim, norm_eps)
        self.post_attention_layernorm = nn.RMSNorm(dim, norm_eps)

    @property
    def cache_kind(self) -> CacheKind:
        """What this layer needs remembered."""
        return self.self_attn.cache_kind

    def __call__(self, x: mx.array, rotation: Rotation, cache: AttentionCache) -> mx.array:
        """`[B, T, D]` to `[B, T, D]`."""
        x = x + self._branch(self.self_attn(self.input_layernorm(x), rotation, cache))
        return x + self._branch(self.mlp(self.post_attention_layernorm(x)))

    def _branch(self, out: mx.array) -> mx.array:
        return scaled(out, self.residual_scale)


def scaled(x: mx.array, by: float) -> mx.array:
    """`x * by`, of any shape, rounded once.

    A factor in half precision would be off by up to a quarter percent.
    """
    return x if by == 1.0 else (x.astype(mx.float32) * by).astype(x.dtype)


class Layer(Protocol):
    """What a `CausalDecoder` asks of its layers."""

    @property
    def cache_kind(self) -> CacheKind:
        """What the layer needs remembered."""
        ...

    def __call__(self, x: mx.array, rotation: Rotation, cache: Any, /) -> mx.array:
        """`[B, T, D]` to `[B, T, D]`; `cache` is of the layer's kind."""
        ...


class CausalDecoder(Model):
    """Embedding, decoder layers, final norm, head.

    Args:
        vocab_size: rows of the embedding.
        dim: width of the hidden states.
        layers: the layers, in order.
        rope: the rotary embedding that all layers share.
        norm_eps: epsilon of the final norm.
        tied: whether the head is the embedding's transpose.
        embedding_scale: multiplies the embeddings.
        head_scale: multiplies the normed hidden states before the head.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        dim: int,
        layers: Sequence[Layer],
        rope: Rope,
        norm_eps: float,
        tied: bool,
        embedding_scale: float = 1.0,
        head_scale: float = 1.0,
    ) -> None:
        super().__init__()
        self.rope = rope
        self.tied = tied
        self.embedding_scale = embedding_scale
        self.head_scale = head_scale
        self.embed_tokens = nn.Embedding(vocab_size, dim)
        self.layers = list(layers)
        self.norm = nn.RMSNorm(dim, norm_eps)
        if not tied:
            self.lm_head = nn.Linear(dim, vocab_size, bias=False)

    @classmethod
    def from_config(
        cls,
        config: DecoderConfig,
        layers: Sequence[Layer],
        *,
        rotary_dim: int | None = None,
        embedding_scale: float = 1.0,
        head_scale: float = 1.0,
    ) -> Self:
        """The decoder that a config's shared keys describe, around the given layers.

        Args:
            config: the keys.
            layers: the layers, in order.
            rotary_dim: width of what the layers rotate; `head_dim` if None. `LatentAttention`
                rotates a part of a head: upstream `qk_rope_head_dim`.
            embedding_scale: multiplies the embeddings.
            head_scale: multiplies the normed hidden states before the head.
        """
        width = config.head_dim if rotary_dim is None else rotary_dim
        return cls(
            vocab_size=config.vocab_size,
            dim=config.hidden_size,
            layers=layers,
            rope=Rope(config.rope, width, config.max_position_embeddings),
            norm_eps=config.rms_norm_eps,
            tied=config.tied,
            embedding_scale=embedding_scale,
            head_scale=head_scale,
        )

    def cache_kinds(self) -> Sequence[CacheKind]:
        """One kind per layer, in order."""
        return [layer.cache_kind for layer in self.layers]

    def embed(self, step: Step) -> mx.array:
        """`[B, T]` ids to `[B, T, D]`."""
        hidden = self.embed_tokens(step.ids)
        # In float32, whatever type the table is kept in: the caller says what is computed in.
        return (
            hidden
            if self.embedding_scale == 1.0
            else hidden.astype(mx.float32) * (self.embedding_scale)
        )

    def __call__(self, hidden: mx.array, step: Step, caches: Sequence[Any]) -> mx.array:
        """Run the layers and the final norm; `[B, T, D]` to `[B, T, D]`."""
        rotation = self.rope(step)
        for index, (layer, cache) in enumerate(zip(self.layers, caches, strict=True)):
            hidden = layer(hidden, rotation, cache)
            if index < len(step.deep):
                hidden = hidden + step.deep[index]
            step.tap(index, hidden)
        return self.norm(hidden)

    @property
    def extent_boundary(self) -> int | None:
        """The rotary embedding's."""
        return self.rope.extent_boundary

    @property
    def rotates_keys(self) -> bool:
        """Whether the rotary embedding can be moved."""
        return self.rope.turns

    def rotate_keys(self, layer: int, keys: mx.array, by: int) -> mx.array:
        """Move stored keys to positions `by` further on; all layers share one rotation."""
        return self.rope.turn(keys, by)

    def logits(self, hidden: mx.array) -> mx.array:
        """`[..., D]` to `[..., V]`."""
        hidden = scaled(hidden, self.head_scale)
        return self.embed_tokens.as_linear(hidden) if self.tied else self.lm_head(hidden)
