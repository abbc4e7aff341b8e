"""The gated short convolution of LFM2 (Liquid AI 2025, arXiv:2511.23404)."""

from __future__ import annotations

import mlx.core as mx
import mlx.nn as nn

from phyla.family import Recurrent, StateCache
from phyla.nn.conv import CausalConv1d


class ShortConv(nn.Module):
    """`out_proj(c * conv(b * x))` with `b, c, x = in_proj(input)`; no activation anywhere.

    Its state is the last K - 1 values of `b * x`, `[B, K - 1, D]`, in the activations' dtype.

    Args:
        dim: D, width of the hidden states.
        kernel: K, how many tokens an output sees; upstream `conv_L_cache`.
        bias: whether the projections and the convolution have one; upstream `conv_bias`.
    """

    def __init__(self, dim: int, kernel: int, *, bias: bool = False) -> None:
        super().__init__()
        self.in_proj = nn.Linear(dim, 3 * dim, bias=bias)
        self.conv = CausalConv1d(dim, kernel, bias=bias)
        self.out_proj = nn.Linear(dim, dim, bias=bias)

    @property
    def cache_kind(self) -> Recurrent:
        """What this block needs remembered."""
        return Recurrent(shapes=(self.conv.state_shape,), dtypes=(None,))

    def __call__(self, x: mx.array, cache: StateCache) -> mx.array:
        """`[B, T, D]` to `[B, T, D]`."""
        before, after, value = mx.split(self.in_proj(x), 3, axis=-1)
        (state,) = cache.states
        filtered, state = self.conv(before * value, state)
        cache.advance(state, tokens=x.shape[1])
        return self.out_proj(after * filtered)
