"""Multi-head latent attention (DeepSeek-AI 2024, arXiv:2405.04434): keys and values from one latent.

What is stored for a token is its latent and one rotated key part for all heads, a small share of
the keys and values that come of them. They never do come of them: a head's map from latents to keys
is applied to the query instead, and its map to values to what the attention returns::

    q_h . k_h(c) = (W_k^T q_h) . c        sum_t a_t v_h(c_t) = W_v sum_t a_t c_t
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import mlx.core as mx
import mlx.nn as nn

from phyla.family import AttentionCache, Full
from phyla.nn.checks import check_least
from phyla.nn.fusion import Fusable, join_linears

if TYPE_CHECKING:
    from phyla.nn.rope import Rotation


@dataclass(frozen=True, kw_only=True)
class LatentShape:
    """The numbers of a latent attention block, with their keys in config.json.

    Attributes:
        heads: `num_attention_heads`.
        latent: width of a token's latent; `kv_lora_rank`.
        query_rank: width of the latent that queries come from, None for none; `q_lora_rank`.
        plain_dim: the part of a query and a key without a position; `qk_nope_head_dim`.
        rotary_dim: the part that is rotated, one key for all heads; `qk_rope_head_dim`.
        value_dim: width of a head's value; `v_head_dim`.
        norm_eps: epsilon of the norms of the latents.
        bias: whether the maps to latents and the output have one.
        scale: multiplies the scores; `(plain_dim + rotary_dim) ** -0.5` and what YaRN adds to it.

    Raises:
        ValueError: a width is no positive integer, or `rotary_dim` is odd.
    """

    heads: int
    latent: int
    query_rank: int | None
    plain_dim: int
    rotary_dim: int
    value_dim: int
    norm_eps: float
    bias: bool
    scale: float

    def __post_init__(self) -> None:
        names = ("heads", "latent", "plain_dim", "rotary_dim", "value_dim")
        numbers = [(name, getattr(self, name)) for name in names]
        rank = [] if self.query_rank is None else [("query_rank", self.query_rank)]
        check_least("LatentShape", [*numbers, *rank])
        if self.rotary_dim % 2:
            raise ValueError(
                f"LatentShape: rotary_dim should be an even number; found {self.rotary_dim}."
            )

    @property
    def cache_kind(self) -> Full:
        """One head, whose key is the rotated part and the latent, and whose value is the latent."""
        return Full(heads=1, key_dim=self.rotary_dim + self.latent, value_dim=self.latent)


class LatentAttention(Fusable):
    """Attention of all heads over latents, under DeepSeek-V2's names.

    Per head, `q_proj` or `q_b_proj` gives the plain part of a query, then the rotary one, and
    `kv_b_proj` gives the plain part of a key, then the value. What is remembered of a token is the
    rotary part of its key and its latent, `rotary_dim + latent` values for all heads together.

    Args:
        dim: D, width of the hidden states.
        shape: its numbers.
    """

    def __init__(self, dim: int, shape: LatentShape) -> None:
        super().__init__()
        self.shape = shape
        queries = shape.heads * (shape.plain_dim + shape.rotary_dim)
        if shape.query_rank is None:
            self.q_proj = nn.Linear(dim, queries, bias=False)
        else:
            self.q_a_proj = nn.Linear(dim, shape.query_rank, bias=shape.bias)
            self.q_a_layernorm = nn.RMSNorm(shape.query_rank, shape.norm_eps)
            self.q_b_proj = nn.Linear(shape.query_rank, queries, bias=False)
        self.kv_a_proj_with_mqa = nn.Linear(dim, shape.latent + shape.rotary_dim, bias=shape.bias)
        self.kv_a_layernorm = nn.RMSNorm(shape.latent, shape.norm_eps)
        self.kv_b_proj = nn.Linear(
            shape.latent, shape.heads * (shape.plain_dim + shape.value_dim), bias=False
        )
        self.o_proj = nn.Linear(shape.heads * shape.value_dim, dim, bias=shape.bias)
        self.absorbed = False

    @property
    def cache_kind(self) -> Full:
        """What this block needs remembered."""
        return self.shape.cache_kind

    def fuse(self) -> None:
        """Cut `kv_b_proj` into each head's two maps, and join the two maps to latents."""
        if self.absorbed:
            return
        self.key_maps, self.value_maps = _head_maps(self.kv_b_proj, self.shape)
        del self.kv_b_proj
        self.absorbed = True
        if self.shape.query_rank is not None:
            joined = join_linears([self.q_a_proj, self.kv_a_proj_with_mqa])
            if joined is not None:
                del self.q_a_proj, self.kv_a_proj_with_mqa
                self.qkv_a_proj = joined

    def __call__(self, x: mx.array, rotation: Rotation, cache: AttentionCache) -> mx.array:
        """Attend over the cache and this chunk; `[B, T, D]` to `[B, T, D]`.

        Raises:
            ValueError: the rotation is not of `rotary_dim` dimensions, so it was made for others.
        """
        shape = self.shape
        turned = rotation.cos.shape[-1]
        if turned != shape.rotary_dim:
            raise ValueError(
                f"LatentAttention: the rotation should be of rotary_dim ({shape.rotary_dim}) "
                f"dimensions; found one of {turned}. Make the Rope with that width, as "
                "CausalDecoder.from_config does with rotary_dim."
            )
        rows, length, _ = x.shape
        queries, latent, rotary_key = self._project(x)
        queries = queries.reshape(rows, length, shape.heads, -1).swapaxes(1, 2)
        plain, rotary = mx.split(queries, [shape.plain_dim], axis=-1)
        latent = self.kv_a_layernorm(latent)[:, None]  # (B, 1, T, latent)
        key_maps, value_maps = self._maps()
        out = cache.attend(
            mx.concatenate([rotation(rotary), key_maps.transposed(plain)], axis=-1),
            mx.concatenate([rotation(rotary_key[:, None]), latent], axis=-1),
            latent,
            scale=shape.scale,
        )
        out = value_maps(out)  # (B, heads, T, value_dim)
        return self.o_proj(out.swapaxes(1, 2).reshape(rows, length, -1))

    def _project(self, x: mx.array) -> tuple[mx.array, mx.array, mx.array]:
        """Queries of all heads, the latent before its norm, and the rotary key, `[B, T, ...]`."""
        shape = self.shape
        if "qkv_a_proj" in self:
            assert shape.query_rank is not None
            parts = mx.split(
                self.qkv_a_proj(x), [shape.query_rank, shape.query_rank + shape.latent], axis=-1
            )
            return self.q_b_proj(self.q_a_layernorm(parts[0])), parts[1], parts[2]
        latent, rotary = mx.split(self.kv_a_proj_with_mqa(x), [shape.latent], axis=-1)
        if shape.query_rank is None:
            return self.q_proj(x), latent, rotary
        return self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x))), latent, rotary

    def _maps(self) -> tuple[HeadMaps, HeadMaps]:
        if self.absorbed:
            return self.key_maps, self.value_maps
        return _head_maps(self.kv_b_proj, self.shape)


class HeadMaps(nn.Module):
    """A linear map for each head, `[heads, out, in]`, plain or packed; usable in both directions.

    Args:
        source: the `nn.Linear` or `nn.QuantizedLinear` that the parts come from.
        parts: its `weight`, and `scales` and `biases` if it has them, `[heads, out, ...]`.
    """

    def __init__(self, source: nn.Module, parts: dict[str, mx.array]) -> None:
        super().__init__()
        self.packing = None
        if isinstance(source, nn.QuantizedLinear):
            self.packing = (source.group_size, source.bits, source.mode)
        for name, part in parts.items():
            self[name] = part
        self.freeze()

    def __call__(self, x: mx.array) -> mx.array:
        """`[B, heads, T, in]` to `[B, heads, T, out]`."""
        return self._product(x, transpose=True)

    def transposed(self, x: mx.array) -> mx.array:
        """`[B, heads, T, out]` to `[B, heads, T, in]`."""
        return self._product(x, transpose=False)

    def _product(self, x: mx.array, *, transpose: bool) -> mx.array:
        if self.packing is None:
            weight = self["weight"]
            return x @ (weight.swapaxes(-1, -2) if transpose else weight)
        group_size, bits, mode = self.packing
        return mx.quantized_matmul(
            x,
            self["weight"],
            self["scales"],
            self.get("biases"),
            transpose=transpose,
            group_size=group_size,
            bits=bits,
            mode=mode,
        )


def _head_maps(source: nn.Module, shape: LatentShape) -> tuple[HeadMaps, HeadMaps]:
    """The maps to the plain part of a key and to a value, as copies of their own."""
    keys: dict[str, mx.array] = {}
    values: dict[str, mx.array] = {}
    for name in ("weight", "scales", "biases"):
        if name in source:
            by_head = source[name].reshape(shape.heads, shape.plain_dim + shape.value_dim, -1)
            keys[name] = mx.contiguous(by_head[:, : shape.plain_dim])
            values[name] = mx.contiguous(by_head[:, shape.plain_dim :])
    return HeadMaps(source, keys), HeadMaps(source, values)
