"""Normalizations that MLX does not have as they are published."""

from __future__ import annotations

import mlx.core as mx

from phyla.nn.fusion import Fusable


class ZeroCentredRMSNorm(Fusable):
    """RMS norm (Zhang & Sennrich 2019, arXiv:1910.07467) times `1 + weight`.

    Gemma's and Qwen3-Next's form: the weight that a file holds lies around zero. There 16 bits hold
    it more finely than one more than it, so the sum is kept in float32.

    Args:
        dim: width of the last axis.
        eps: added to the mean of the squares.
    """

    def __init__(self, dim: int, eps: float) -> None:
        super().__init__()
        self.weight = mx.zeros((dim,))
        self.eps = eps
        self.shifted = False

    def fuse(self) -> None:
        """Add the one to the weight, once."""
        if not self.shifted:
            self.weight = 1 + self.weight.astype(mx.float32)
            self.shifted = True

    def __call__(self, x: mx.array) -> mx.array:
        """`[..., dim]` to `[..., dim]`, in the dtype of `x`; computed in float32."""
        weight = self.weight if self.shifted else 1 + self.weight.astype(mx.float32)
        # The result has the wider of the two types, which must not widen what follows.
        return mx.fast.rms_norm(x, weight, self.eps).astype(x.dtype)
