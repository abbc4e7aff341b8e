"""The vision tower of MiniCPM-V 4.6 and 4.7: SigLIP for pictures of any shape, joined half-way.

Every picture is a grid of patches and attends to itself alone (NaViT, Dehghani et al. 2023,
arXiv:2307.06304). Patches are sorted once, so that those which are joined, here and behind the
tower, lie side by side: the four of a window, then the four windows of a larger one, and so on.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from phyla.nn import VisionAttention, VisionBlock, gelu_tanh

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from phyla_families.minicpm.tower_config import TowerConfig

# Patches to a window.
WINDOW = 4


class VisionTower(nn.Module):
    """Embedding, blocks with a window merger between two of them, final norm."""

    def __init__(self, config: TowerConfig) -> None:
        super().__init__()
        self._merges = config.merges
        self._joins_after = config.insert_layer_id if config.merges_windows else None
        self.embeddings = PatchEmbeddings(config)
        self.encoder = Encoder(config)
        self.vit_merger = WindowMerger(config)
        self.post_layernorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def __call__(self, pixels: mx.array, grids: Sequence[tuple[int, int]]) -> mx.array:
        """Look at pictures.

        Args:
            pixels: `[N, patch, patch, 3]`, normalised; the patches of each picture row by row.
            grids: rows and columns of patches of each picture, multiples of `2**merges`.

        Returns:
            `[N / 4, D]`, or `[N, D]` without the window merger, sorted for the merger.
        """
        order = np.concatenate(_shifted([merge_order(*grid, self._merges) for grid in grids]))
        x = self.embeddings(pixels, grids)[mx.array(order)]
        lengths = [rows * cols for rows, cols in grids]
        for index, layer in enumerate(self.encoder.layers):
            x = layer(x, lengths)
            if index == self._joins_after:
                x = self.vit_merger(x)
                lengths = [length // WINDOW for length in lengths]
        return self.post_layernorm(x)


class PatchEmbeddings(nn.Module):
    """A projection of each patch, plus what a table says of its place in the picture."""

    def __init__(self, config: TowerConfig) -> None:
        super().__init__()
        self._side = config.image_size // config.patch_size
        self.patch_embedding = PatchEmbedding(config.hidden_size, config.patch_size)
        self.position_embedding = nn.Embedding(self._side**2, config.hidden_size)

    def __call__(self, pixels: mx.array, grids: Sequence[tuple[int, int]]) -> mx.array:
        """`[N, patch, patch, 3]` to `[N, D]`."""
        places = np.concatenate([table_places(*grid, self._side) for grid in grids])
        return self.patch_embedding(pixels) + self.position_embedding(mx.array(places))


class PatchEmbedding(nn.Module):
    """A convolution whose stride is its kernel: one product for each patch."""

    def __init__(self, dims: int, patch: int) -> None:
        super().__init__()
        self.weight = mx.zeros((dims, patch, patch, 3))
        self.bias = mx.zeros((dims,))

    def __call__(self, pixels: mx.array) -> mx.array:
        """`[N, patch, patch, 3]` to `[N, D]`, in the type of the weights."""
        flat = pixels.reshape(pixels.shape[0], -1).astype(self.weight.dtype)
        return flat @ self.weight.reshape(self.weight.shape[0], -1).T + self.bias


class Encoder(nn.Module):
    """The blocks, under the name that checkpoints give their list."""

    def __init__(self, config: TowerConfig) -> None:
        super().__init__()
        self.layers = [
            VisionBlock(
                config.hidden_size,
                config.intermediate_size,
                config.num_attention_heads,
                eps=config.layer_norm_eps,
            )
            for _ in range(config.num_hidden_layers)
        ]


class WindowMerger(nn.Module):
    """Four patches attend to one another, then become one: their mean plus an MLP of all four."""

    def __init__(self, config: TowerConfig) -> None:
        super().__init__()
        dims, eps = config.hidden_size, config.layer_norm_eps
        self.layer_norm1 = nn.LayerNorm(dims, eps=eps)
        self.self_attn = VisionAttention(dims, config.num_attention_heads)
        self.pre_norm = nn.LayerNorm(WINDOW * dims, eps=eps)
        self.linear_1 = nn.Linear(WINDOW * dims, WINDOW * config.intermediate_size)
        self.linear_2 = nn.Linear(WINDOW * config.intermediate_size, dims)

    def __call__(self, x: mx.array) -> mx.array:
        """`[N, D]`, windows one behind the other, to `[N / 4, D]`."""
        count = x.shape[0] // WINDOW
        x = x + self.self_attn(self.layer_norm1(x), [WINDOW] * count)
        mean = x.reshape(count, WINDOW, -1).mean(axis=1)
        inner = gelu_tanh(self.linear_1(self.pre_norm(x.reshape(count, -1))))
        return self.linear_2(inner) + mean


@functools.lru_cache(maxsize=64)
def merge_order(rows: int, cols: int, merges: int) -> NDArray[np.int32]:
    """The patches of a grid, counted row by row, in the order in which they are joined.

    After each of `merges` rounds that join four neighbours in this order, four neighbours form a
    square of two rows and two columns; after the last, the rest stands row by row.
    """
    side = 2**merges
    # Two digits of base 2 for each round, the first round's last.
    bits = (2,) * merges
    counted = np.arange(rows * cols, dtype=np.int32)
    digits = counted.reshape(rows // side, *bits, cols // side, *bits)
    pairs = [axis for level in range(merges + 1) for axis in (level, level + merges + 1)]
    return digits.transpose(pairs).reshape(-1)


@functools.lru_cache(maxsize=64)
def table_places(rows: int, cols: int, side: int) -> NDArray[np.int32]:
    """Where each patch, row by row, looks in a table of `side` rows and columns: the nearest below.

    Patch i of n stands at i/n of the picture, which is in entry `floor(i * side / n)`.
    """
    down = np.arange(rows, dtype=np.int32) * side // rows
    across = np.arange(cols, dtype=np.int32) * side // cols
    return (down[:, None] * side + across).reshape(-1)


def _shifted(orders: Sequence[NDArray[np.int32]]) -> list[NDArray[np.int32]]:
    """Orders of pictures, counted through."""
    starts = np.cumsum([0, *(len(order) for order in orders[:-1])], dtype=np.int32)
    return [order + start for order, start in zip(orders, starts, strict=True)]
