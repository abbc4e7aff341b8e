"""From what a tower gives to the text model's width."""

from __future__ import annotations

import mlx.core as mx
import mlx.nn as nn


class Projector(nn.Module):
    """A norm without weights, then a projection without bias.

    Args:
        dims: width of the features.
        out: width of the text model.
        eps: of the norm.
    """

    def __init__(self, dims: int, out: int, *, eps: float) -> None:
        super().__init__()
        self._eps = eps
        self.embedding_projection = nn.Linear(dims, out, bias=False)

    def __call__(self, x: mx.array) -> mx.array:
        """float32 `[N, dims]` to `[N, out]`."""
        return self.embedding_projection(mx.fast.rms_norm(x, None, self._eps))
