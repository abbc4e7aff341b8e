"""A projection whose input and output are bounded, as the small Gemma 4 models were trained."""

from __future__ import annotations

import mlx.core as mx
import mlx.nn as nn


class ClippedLinear(nn.Module):
    """`clip(linear(clip(x)))`, without bias; the four bounds are numbers of the checkpoint.

    Args:
        dims: width of the input.
        out: width of the output.
        clipped: whether there are bounds.
    """

    def __init__(self, dims: int, out: int, *, clipped: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(dims, out, bias=False)
        self._clipped = clipped
        if clipped:
            self.input_min, self.input_max = mx.array(-mx.inf), mx.array(mx.inf)
            self.output_min, self.output_max = mx.array(-mx.inf), mx.array(mx.inf)

    def __call__(self, x: mx.array) -> mx.array:
        """`[..., dims]` to `[..., out]`."""
        if not self._clipped:
            return self.linear(x)
        y = self.linear(_clip(x, self.input_min, self.input_max))
        return _clip(y, self.output_min, self.output_max)


def _clip(x: mx.array, low: mx.array, high: mx.array) -> mx.array:
    return mx.clip(x, low.astype(x.dtype), high.astype(x.dtype))
