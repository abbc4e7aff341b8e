"""From what towers make to what the decoder reads in the place of embeddings."""

from __future__ import annotations

import mlx.core as mx
import mlx.nn as nn

from phyla_families.nemotron_h.omni_config import MERGE

_NORM_EPS = 1e-5


class Projector(nn.Module):
    """`linear_2(relu(linear_1(norm(x)))^2)`.

    Args:
        dim: width of what comes in.
        hidden: width inside.
        out: width of the decoder.
        bias: whether the linear layers have biases.
    """

    def __init__(self, dim: int, hidden: int, out: int, *, bias: bool = False) -> None:
        super().__init__()
        self.layer_norm = nn.RMSNorm(dim, _NORM_EPS)
        self.linear_1 = nn.Linear(dim, hidden, bias=bias)
        self.linear_2 = nn.Linear(hidden, out, bias=bias)

    def __call__(self, x: mx.array) -> mx.array:
        """`[..., D]` to `[..., out]`."""
        return self.linear_2(mx.square(mx.maximum(self.linear_1(self.layer_norm(x)), 0)))


def pixel_shuffle(x: mx.array) -> mx.array:
    """Join each block of 2 x 2 patches into one (Shi et al. 2016, arXiv:1609.05158, backwards).

    `[F, rows, columns, D]` to `[F * rows/2 * columns/2, 4 * D]`: row by row over a picture, and
    within a block too.
    """
    count, rows, columns, dim = x.shape
    cut = x.reshape(count, rows // MERGE, MERGE, columns // MERGE, MERGE, dim)
    return cut.swapaxes(2, 3).reshape(-1, MERGE**2 * dim)
