"""Gemma 4's vision tower: a transformer over 16-pixel patches, pooled three by three.

ViT (Dosovitskiy et al., 2021) with the text model's norms, rotated by column and row (axial RoPE).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
import mlx.nn as nn

from phyla.nn import attend_within, geglu
from phyla_families.gemma4.clipped import ClippedLinear
from phyla_families.gemma4.pixels import columns_and_rows, patches, working_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from phyla.nn import VisionRotation
    from phyla_families.gemma4.media_config import TowerConfig


class VisionTower(nn.Module):
    """Pictures of one size in, features of the soft tokens out."""

    def __init__(self, config: TowerConfig) -> None:
        super().__init__()
        self._config = config
        self.patch_embedder = PatchEmbedder(config)
        self.encoder = Encoder(config)
        if config.standardize:
            self.std_bias = mx.zeros((config.hidden_size,))
            self.std_scale = mx.ones((config.hidden_size,))

    def __call__(self, pixels: mx.array) -> mx.array:
        """uint8 `[pictures, H, W, 3]` to float32 `[pictures * soft tokens, D]`, row by row."""
        config = self._config
        count, height, width, _ = pixels.shape
        rows, columns = height // config.patch_size, width // config.patch_size
        across, down = columns_and_rows(count, rows, columns)
        x = self.patch_embedder(pixels, across, down)
        rotate = axial_rotation(across, down, config.head_dim, config.rope_theta)
        x = self.encoder(x, (rows * columns,) * count, rotate)
        # The scale is for a float32: with it, features can pass the largest float16.
        x = pooled(x.astype(mx.float32), rows, columns, config.pooling_kernel_size)
        x = x * config.hidden_size**0.5
        return (x - self.std_bias) * self.std_scale if config.standardize else x


class PatchEmbedder(nn.Module):
    """A projection of the pixels, plus an embedding of the column and one of the row."""

    def __init__(self, config: TowerConfig) -> None:
        super().__init__()
        self._side = config.patch_size
        dims = config.hidden_size
        self.input_proj = nn.Linear(3 * self._side**2, dims, bias=False)
        self.position_embedding_table = mx.zeros((2, config.position_embedding_size, dims))

    def __call__(self, pixels: mx.array, across: mx.array, down: mx.array) -> mx.array:
        """uint8 `[pictures, H, W, 3]` to `[patches, D]`."""
        table = self.position_embedding_table
        values = patches(pixels, self._side).astype(mx.float32) / 255
        x = self.input_proj((2 * (values - 0.5)).astype(working_type(table.dtype)))
        return x + (table[0][across] + table[1][down])


class Encoder(nn.Module):
    """The blocks; there is no norm behind the last."""

    def __init__(self, config: TowerConfig) -> None:
        super().__init__()
        self.layers = [Block(config) for _ in range(config.num_hidden_layers)]

    def __call__(self, x: mx.array, lengths: Sequence[int], rotate: VisionRotation) -> mx.array:
        """`[patches, D]` to `[patches, D]`."""
        for layer in self.layers:
            x = layer(x, lengths, rotate)
        return x


class Block(nn.Module):
    """Attention and a gated MLP, each between two norms."""

    def __init__(self, config: TowerConfig) -> None:
        super().__init__()
        dims, eps = config.hidden_size, config.rms_norm_eps
        self.self_attn = Attention(config)
        self.mlp = MLP(config)
        self.input_layernorm = nn.RMSNorm(dims, eps)
        self.post_attention_layernorm = nn.RMSNorm(dims, eps)
        self.pre_feedforward_layernorm = nn.RMSNorm(dims, eps)
        self.post_feedforward_layernorm = nn.RMSNorm(dims, eps)

    def __call__(self, x: mx.array, lengths: Sequence[int], rotate: VisionRotation) -> mx.array:
        """`[patches, D]` to `[patches, D]`."""
        attended = self.self_attn(self.input_layernorm(x), lengths, rotate)
        x = x + self.post_attention_layernorm(attended)
        return x + self.post_feedforward_layernorm(self.mlp(self.pre_feedforward_layernorm(x)))


class Attention(nn.Module):
    """Attention of each patch to its whole picture; queries, keys and values are normed."""

    def __init__(self, config: TowerConfig) -> None:
        super().__init__()
        self._shape = (config.num_attention_heads, config.head_dim)
        self._eps = config.rms_norm_eps
        dims, width = config.hidden_size, config.num_attention_heads * config.head_dim
        clipped = config.use_clipped_linears
        self.q_proj = ClippedLinear(dims, width, clipped=clipped)
        self.k_proj = ClippedLinear(dims, width, clipped=clipped)
        self.v_proj = ClippedLinear(dims, width, clipped=clipped)
        self.o_proj = ClippedLinear(width, dims, clipped=clipped)
        self.q_norm = nn.RMSNorm(config.head_dim, self._eps)
        self.k_norm = nn.RMSNorm(config.head_dim, self._eps)

    def __call__(self, x: mx.array, lengths: Sequence[int], rotate: VisionRotation) -> mx.array:
        """`[patches, D]` to `[patches, D]`."""
        queries, keys, values = (
            proj(x).reshape(x.shape[0], *self._shape)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        out = attend_within(
            rotate(self.q_norm(queries)),
            rotate(self.k_norm(keys)),
            mx.fast.rms_norm(values, None, self._eps),
            lengths,
            scale=1.0,
        )
        return self.o_proj(out.reshape(x.shape[0], -1))


class MLP(nn.Module):
    """`down(gelu(gate(x)) * up(x))`."""

    def __init__(self, config: TowerConfig) -> None:
        super().__init__()
        dims, hidden = config.hidden_size, config.intermediate_size
        clipped = config.use_clipped_linears
        self.gate_proj = ClippedLinear(dims, hidden, clipped=clipped)
        self.up_proj = ClippedLinear(dims, hidden, clipped=clipped)
        self.down_proj = ClippedLinear(hidden, dims, clipped=clipped)

    def __call__(self, x: mx.array) -> mx.array:
        """`[patches, D]` to `[patches, D]`."""
        return self.down_proj(geglu(self.gate_proj(x), self.up_proj(x)))


def axial_rotation(across: mx.array, down: mx.array, head_dim: int, theta: float) -> VisionRotation:
    """A rotation whose first half of a head turns by the column and whose second by the row.

    In each half, pairs lie half of it apart, and pair i of n turns by `theta**(-i / n)` a step.

    Args:
        across: the patches' columns, `[N]`.
        down: and rows.
        head_dim: a multiple of 4.
        theta: the base.
    """
    pairs = head_dim // 4
    speeds = theta ** (-mx.arange(pairs, dtype=mx.float32) / pairs)
    places = mx.stack([across, down], axis=-1).astype(mx.float32)
    angles = places[:, None, :, None] * speeds  # (N, 1, halves, pairs)
    cosines, sines = mx.cos(angles), mx.sin(angles)

    def rotate(x: mx.array) -> mx.array:
        halves = x.reshape(*x.shape[:-1], 2, 2, pairs)
        first, second = halves[..., 0, :], halves[..., 1, :]
        cos, sin = cosines.astype(x.dtype), sines.astype(x.dtype)
        turned = [first * cos - second * sin, second * cos + first * sin]
        return mx.stack(turned, axis=-2).reshape(x.shape)

    return rotate


def pooled(x: mx.array, rows: int, columns: int, kernel: int) -> mx.array:
    """Average squares of `kernel` by `kernel` patches: `[N, D]` to `[N / kernel**2, D]`."""
    dims = x.shape[-1]
    squares = x.reshape(-1, rows // kernel, kernel, columns // kernel, kernel, dims)
    return squares.mean(axis=(2, 4)).reshape(-1, dims)
