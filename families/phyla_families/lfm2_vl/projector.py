"""From the tower's patches to soft tokens: each square of patches becomes one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
import mlx.nn as nn

if TYPE_CHECKING:
    from collections.abc import Sequence


class Projector(nn.Module):
    """Pixel unshuffle, a layer norm or none, and two linear layers with a GELU between.

    Args:
        vision_dim: width of a patch.
        hidden: width between the linear layers.
        text_dim: width of a soft token.
        factor: the side of a square, in patches.
        bias: whether the linear layers have one.
        layer_norm: whether there is a norm before them.
    """

    def __init__(
        self,
        vision_dim: int,
        hidden: int,
        text_dim: int,
        *,
        factor: int,
        bias: bool,
        layer_norm: bool,
    ) -> None:
        super().__init__()
        self._factor = factor
        width = vision_dim * factor**2
        if layer_norm:
            self.layer_norm = nn.LayerNorm(width)
        self._normalizes = layer_norm
        self.linear_1 = nn.Linear(width, hidden, bias=bias)
        self.linear_2 = nn.Linear(hidden, text_dim, bias=bias)

    def __call__(self, patches: mx.array, shapes: Sequence[tuple[int, int]]) -> mx.array:
        """Project some pictures.

        Args:
            patches: `[N, vision_dim]`, picture after picture, by rows.
            shapes: rows and columns of patches of each picture, multiples of the factor.

        Returns:
            `[N / factor^2, text_dim]`.
        """
        squares: list[mx.array] = []
        start = 0
        for rows, columns in shapes:
            picture = patches[start : start + rows * columns].reshape(rows, columns, -1)
            squares.append(pixel_unshuffle(picture, self._factor))
            start += rows * columns
        x = mx.concatenate(squares)
        if self._normalizes:
            x = self.layer_norm(x)
        return self.linear_2(nn.gelu(self.linear_1(x)))


def pixel_unshuffle(picture: mx.array, factor: int) -> mx.array:
    """Squares of patches side by side in channels, by rows (Shi et al. 2016, arXiv:1609.05158).

    `[R, C, D]` to `[R / factor * C / factor, factor^2 * D]`.
    """
    rows, columns, dim = picture.shape
    squares = picture.reshape(rows // factor, factor, columns // factor, factor, dim)
    return squares.swapaxes(1, 2).reshape(-1, factor * factor * dim)
