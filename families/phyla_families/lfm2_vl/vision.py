"""SigLIP 2's NaFlex tower (Tschannen et al. 2025, arXiv:2502.14786): pictures of any shape.

A picture is a grid of flattened patches. The learned positions, a square, are resized to that grid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from phyla.nn import VisionBlock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from phyla_families.lfm2_vl.vision_config import VisionConfig


class VisionTower(nn.Module):
    """Patch and position embeddings, pre-norm blocks, a last norm; the pooling head is left out."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        dim, eps = config.hidden_size, config.layer_norm_eps
        self.embeddings = PatchEmbeddings(config)
        self.layers = [
            VisionBlock(dim, config.intermediate_size, config.num_attention_heads, eps=eps)
            for _ in range(config.num_hidden_layers)
        ]
        self.post_layernorm = nn.LayerNorm(dim, eps)

    @property
    def dtype(self) -> mx.Dtype:
        """What the activations are in: a vector's type, for matrices may be packed or narrower."""
        return self.post_layernorm.weight.dtype

    def __call__(self, patches: mx.array, shapes: Sequence[tuple[int, int]]) -> mx.array:
        """Read some pictures, each by itself.

        Args:
            patches: `[N, patch * patch * 3]`, picture after picture, by rows; normalized.
            shapes: rows and columns of patches of each picture.

        Returns:
            `[N, D]`.
        """
        x = self.embeddings(patches.astype(self.dtype), shapes)
        lengths = [rows * columns for rows, columns in shapes]
        for layer in self.layers:
            x = layer(x, lengths)
        return self.post_layernorm(x)


class PatchEmbeddings(nn.Module):
    """What is in a patch, plus where it lies."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self._side = config.side
        size = config.patch_size**2 * config.num_channels
        self.patch_embedding = nn.Linear(size, config.hidden_size)
        self.position_embedding = nn.Embedding(config.num_patches, config.hidden_size)

    def __call__(self, patches: mx.array, shapes: Sequence[tuple[int, int]]) -> mx.array:
        """`[N, patch * patch * 3]` to `[N, D]`."""
        known = {shape: self._positions(*shape) for shape in dict.fromkeys(shapes)}
        positions = mx.concatenate([known[shape] for shape in shapes])
        return self.patch_embedding(patches) + positions.astype(patches.dtype)

    def _positions(self, rows: int, columns: int) -> mx.array:
        """The table, resized: `[rows * columns, D]` in float32."""
        side = self._side
        # Through the layer, which may be quantized.
        table = self.position_embedding(mx.arange(side * side)).astype(mx.float32)
        down = mx.array(resizing(side, rows)) @ table.reshape(side, -1)
        across = mx.array(resizing(side, columns)) @ down.reshape(rows, side, -1)
        return across.reshape(rows * columns, -1)


def resizing(old: int, new: int) -> NDArray[np.float32]:
    """The matrix `[new, old]` that resizes an axis: bilinear, antialiased, corners not aligned.

    Each new place takes a triangle's weights, as wide as a new step where that is the larger one.
    """
    step = old / new
    centres = (np.arange(new) + 0.5) * step - 0.5
    distances = np.abs(np.arange(old) - centres[:, None])
    weights = np.maximum(0.0, 1.0 - distances / max(step, 1.0))
    return (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)
