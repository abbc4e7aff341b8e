"""The vision tower of Qwen3-VL (Bai et al. 2025, arXiv:2511.21631) and Qwen3.5.

A SigLIP-2 transformer for pictures of any size: learned positions are stretched over the picture
and rotary ones turn each head, every pair of frames sees only itself, and each block of 2 x 2
patches becomes one soft token. Qwen3-VL takes the output of a few blocks out as well, for the first
layers of the decoder (DeepStack, Meng et al. 2024, arXiv:2406.04334).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
import mlx.nn as nn

from phyla.family import Features
from phyla.nn import VisionBlock
from phyla_families.qwen3.vision_grid import AxialRotation, table_places

if TYPE_CHECKING:
    from collections.abc import Mapping

    from phyla_families.qwen3.vision_config import VisionConfig

_NORM_EPS = 1e-6


class VisionTower(nn.Module):
    """From the frames of one picture or video to features."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self._config = config
        dim = config.hidden_size
        self.patch_embed = PatchEmbedding(config)
        self.pos_embed = nn.Embedding(config.num_position_embeddings, dim)
        self.blocks = [
            VisionBlock(dim, config.intermediate_size, config.num_heads, eps=_NORM_EPS)
            for _ in range(config.depth)
        ]
        self.merger = PatchMerger(config)
        self.deepstack_merger_list = [
            PatchMerger(config, norm_merged=True) for _ in config.deepstack_visual_indexes
        ]

    def __call__(self, arrays: Mapping[str, mx.array]) -> Features:
        """Run on what `frame_arrays` made: `frames` `[F, H, W, 3]`, `scale` and `shift` `[3]`.

        There are `ceil(F / temporal_patch_size) * H * W / block_size**2` features.
        """
        config = self._config
        frames = arrays["frames"]
        _, height, width, _ = frames.shape
        rows, columns = height // config.patch_size, width // config.patch_size
        patches = patchify(frames, config) * arrays["scale"] + arrays["shift"]
        times = patches.shape[0] // (rows * columns)
        hidden = self.patch_embed(patches) + mx.tile(self._positions(rows, columns), (times, 1))
        rotate = AxialRotation.of_grid(
            rows,
            columns,
            config.spatial_merge_size,
            head_dim=config.head_dim,
            theta=config.rope_theta,
            times=times,
        )
        deep: list[mx.array] = []
        for index, block in enumerate(self.blocks):
            hidden = block(hidden, [rows * columns] * times, rotate)
            if index in config.deepstack_visual_indexes:
                deep.append(self.deepstack_merger_list[len(deep)](hidden))
        return Features(self.merger(hidden), tuple(deep))

    def _positions(self, rows: int, columns: int) -> mx.array:
        """The learned positions `[rows * columns, D]` of one frame's patches."""
        merge, side = self._config.spatial_merge_size, self._config.side
        entries, weights = table_places(rows, columns, merge, side)
        taken = self.pos_embed(mx.array(entries))
        return (taken.astype(mx.float32) * mx.array(weights)[..., None]).sum(1).astype(taken.dtype)


def patchify(frames: mx.array, config: VisionConfig) -> mx.array:
    """Cut frames `[F, H, W, 3]` into patches `[N, P_t * P * P, 3]`, in the order of the tower.

    Where frames are missing at the end, the last one is repeated; so is a single picture.
    """
    span, size, merge = config.temporal_patch_size, config.patch_size, config.spatial_merge_size
    count, height, width, channels = frames.shape
    missing = -count % span
    if missing:
        frames = mx.concatenate([frames, mx.repeat(frames[-1:], missing, axis=0)])
    block = size * merge
    cut = frames.reshape(
        -1, span, height // block, merge, size, width // block, merge, size, channels
    )
    ordered = cut.transpose(0, 2, 5, 3, 6, 1, 4, 7, 8)
    return ordered.reshape(-1, span * size * size, channels)


class PatchEmbedding(nn.Module):
    """A convolution whose step is its kernel: each patch by itself, so a matrix product."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        kernel = (config.temporal_patch_size, config.patch_size, config.patch_size)
        self.proj = nn.Conv3d(config.in_channels, config.hidden_size, kernel, stride=kernel)

    def __call__(self, patches: mx.array) -> mx.array:
        """`[N, P_t * P * P, 3]` to `[N, D]`."""
        kernels = self.proj.weight.reshape(self.proj.weight.shape[0], -1)
        flat = patches.reshape(patches.shape[0], -1).astype(kernels.dtype)
        return mx.addmm(self.proj.bias, flat, kernels.T)


class PatchMerger(nn.Module):
    """Joins the patches of a block: `fc2(gelu(fc1(norm(x))))`, with the exact GELU.

    Args:
        config: the tower's.
        norm_merged: norm the joined patches together, not each by itself.
    """

    def __init__(self, config: VisionConfig, *, norm_merged: bool = False) -> None:
        super().__init__()
        self._width = config.hidden_size * config.spatial_merge_size**2
        self._norm_merged = norm_merged
        self.norm = nn.LayerNorm(self._width if norm_merged else config.hidden_size, eps=_NORM_EPS)
        self.linear_fc1 = nn.Linear(self._width, self._width)
        self.linear_fc2 = nn.Linear(self._width, config.out_hidden_size)

    def __call__(self, x: mx.array) -> mx.array:
        """`[N, D]` to `[N / merge**2, out_hidden_size]`."""
        if self._norm_merged:
            merged = self.norm(x.reshape(-1, self._width))
        else:
            merged = self.norm(x).reshape(-1, self._width)
        return self.linear_fc2(nn.gelu(self.linear_fc1(merged)))
