"""C-RADIO (Ranzinger et al. 2023, arXiv:2312.06709): a vision transformer for pictures of any size.

Learned tokens stand before the patches and are left out of what comes out. A video's patches span
several frames and have an embedding of their own.
"""

from __future__ import annotations

from collections.abc import Sequence  # noqa: TC003 (read by documentation tools)
from typing import TYPE_CHECKING

import mlx.core as mx
import mlx.nn as nn

from phyla.nn import VisionAttention
from phyla_families.nemotron_h.positions import stretched

if TYPE_CHECKING:
    from phyla_families.nemotron_h.omni_config import VisionConfig


class VisionTower(nn.Module):
    """Frames of one size to features of their patches."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self._prefix = config.prefix
        self._patch, self._span = config.patch_size, config.span
        self.embeddings = Embeddings(config)
        self.layers = [VisionLayer(config) for _ in range(config.num_hidden_layers)]

    def __call__(
        self, frames: mx.array, scale: mx.array, shift: mx.array, *, film: bool
    ) -> mx.array:
        """Run on one picture, or on a video.

        Args:
            frames: `[F, H, W, 3]`; sides are multiples of a patch.
            scale: `[3]`, what pixels are multiplied by,
            shift: `[3]`, and what is added to them then.
            film: whether frames are those of a video; the last is repeated where a patch needs more.

        Returns:
            `[F or F / span, H / patch, W / patch, D]`.
        """
        span = self._span if film else 1
        assert span is not None
        pixels = frames.astype(mx.float32) * scale + shift
        patches = patchify(pixels, self._patch, span)
        count, rows, columns, _ = patches.shape
        x = self.embeddings(patches, film=film)
        length = x.shape[1]
        x = x.reshape(count * length, -1)
        for layer in self.layers:
            x = layer(x, [length] * count)
        return x.reshape(count, length, -1)[:, self._prefix :].reshape(count, rows, columns, -1)


def patchify(frames: mx.array, size: int, span: int) -> mx.array:
    """Cut frames into patches.

    Args:
        frames: `[F, H, W, 3]`; the last is repeated until the span divides their number.
        size: pixels along the side of a patch.
        span: frames in a patch.

    Returns:
        `[F / span, H / size, W / size, span * 3 * size * size]`: frame by frame, colour by colour.
    """
    count, height, width, channels = frames.shape
    missing = -count % span
    if missing:
        frames = mx.concatenate([frames, mx.repeat(frames[-1:], missing, axis=0)])
    rows, columns = height // size, width // size
    cut = frames.reshape(-1, span, rows, size, columns, size, channels)
    return cut.transpose(0, 2, 4, 1, 6, 3, 5).reshape(-1, rows, columns, span * channels * size**2)


class Embeddings(nn.Module):
    """Patches through a matrix, positions, and the learned tokens before them."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        dim, patch = config.hidden_size, config.num_channels * config.patch_size**2
        self._side = config.side
        self.patch_projection = nn.Linear(patch, dim, bias=False)
        if config.span is not None:
            self.video_patch_projection = nn.Linear(config.span * patch, dim, bias=False)
        self.position_embedding = mx.zeros((1, config.side**2, dim))
        self.cls_register_token = mx.zeros((config.prefix, dim))

    def __call__(self, patches: mx.array, *, film: bool) -> mx.array:
        """`[F, rows, columns, P]` to `[F, prefix + rows * columns, D]`."""
        count, rows, columns, _ = patches.shape
        dtype = self.position_embedding.dtype
        project = self.video_patch_projection if film else self.patch_projection
        embedded = project(patches.reshape(count, rows * columns, -1).astype(dtype))
        table = self.position_embedding.reshape(self._side, self._side, -1)
        embedded = embedded + stretched(table, rows, columns).astype(dtype)
        learned = mx.broadcast_to(self.cls_register_token, (count, *self.cls_register_token.shape))
        return mx.concatenate([learned.astype(dtype), embedded], axis=1)


class VisionLayer(nn.Module):
    """A pre-norm block whose MLP has the exact GELU."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        dim, eps = config.hidden_size, config.layer_norm_eps
        self._scaled = config.layer_scale
        self.norm1 = nn.LayerNorm(dim, eps=eps)
        self.self_attn = VisionAttention(dim, config.num_attention_heads)
        self.norm2 = nn.LayerNorm(dim, eps=eps)
        self.mlp = VisionMLP(dim, config.intermediate_size)
        if config.layer_scale:
            self.layer_scale1 = LayerScale(dim)
            self.layer_scale2 = LayerScale(dim)

    def __call__(self, x: mx.array, lengths: Sequence[int]) -> mx.array:
        """`[N, D]` to `[N, D]`."""
        attended = self.self_attn(self.norm1(x), lengths)
        x = x + (self.layer_scale1(attended) if self._scaled else attended)
        fed = self.mlp(self.norm2(x))
        return x + (self.layer_scale2(fed) if self._scaled else fed)


class VisionMLP(nn.Module):
    """`fc2(gelu(fc1(x)))`."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.fc2 = nn.Linear(hidden, dim)

    def __call__(self, x: mx.array) -> mx.array:
        """`[..., D]` to `[..., D]`."""
        return self.fc2(nn.gelu(self.fc1(x)))


class LayerScale(nn.Module):
    """A factor for each channel (Touvron et al. 2021, arXiv:2103.17239)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.lambda1 = mx.ones((dim,))

    def __call__(self, x: mx.array) -> mx.array:
        """`[..., D]` to `[..., D]`."""
        return x * self.lambda1
