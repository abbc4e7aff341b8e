"""How Gemma 4 12B sees without a tower: each patch of pixels is projected once, and placed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
import mlx.nn as nn

from phyla_families.gemma4.pixels import columns_and_rows, patches, working_type

if TYPE_CHECKING:
    from phyla_families.gemma4.media_config import PatchesConfig

# That of its LayerNorms, which config.json does not say.
_EPS = 1e-5


class PatchEmbedding(nn.Module):
    """LayerNorm, projection, LayerNorm, embeddings of column and row, LayerNorm."""

    def __init__(self, config: PatchesConfig) -> None:
        super().__init__()
        self._side = config.side
        dims = config.mm_embed_dim
        self.patch_ln1 = PixelNorm(config.side)
        self.patch_dense = nn.Linear(3 * config.side**2, dims)
        self.patch_ln2 = nn.LayerNorm(dims, eps=_EPS)
        self.pos_embedding = mx.zeros((config.mm_posemb_size, 2, dims))
        self.pos_norm = nn.LayerNorm(dims, eps=_EPS)

    def __call__(self, pixels: mx.array) -> mx.array:
        """uint8 `[pictures, H, W, 3]` to float32 `[pictures * soft tokens, D]`, row by row."""
        count, height, width, _ = pixels.shape
        across, down = columns_and_rows(count, height // self._side, width // self._side)
        table = self.pos_embedding
        x = self.patch_ln1(patches(pixels, self._side)).astype(working_type(table.dtype))
        x = self.patch_ln2(self.patch_dense(x))
        x = x + (table[across, 0] + table[down, 1])
        return self.pos_norm(x).astype(mx.float32)


class PixelNorm(nn.Module):
    """The LayerNorm of a patch of pixels, `[N, side * side * 3]` uint8 to float32.

    A smooth patch varies by little around a large mean, so what is left of a rounded mean would
    count. The sum of so many bytes is an exact float32, and squares are added row by row.
    """

    def __init__(self, side: int) -> None:
        super().__init__()
        self._side = side
        self.weight = mx.ones((3 * side**2,))
        self.bias = mx.zeros((3 * side**2,))

    def __call__(self, x: mx.array) -> mx.array:
        """Pixels count from 0 to 1."""
        size = x.shape[-1]
        values = x.astype(mx.float32)
        centred = (values - values.sum(axis=-1, keepdims=True) / size) / 255
        by_row = centred.square().reshape(-1, self._side, 3 * self._side).sum(axis=-1)
        variance = by_row.sum(axis=-1, keepdims=True) / size
        return centred * mx.rsqrt(variance + _EPS) * self.weight + self.bias
