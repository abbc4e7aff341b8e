"""Causal depthwise convolution over time, with the inputs it still needs as its state."""

from __future__ import annotations

import mlx.core as mx
import mlx.nn as nn

from phyla.backend import on_cpu
from phyla.nn.checks import check_least


class CausalConv1d(nn.Module):
    """Each channel is filtered by itself; output t sees inputs t-K+1 .. t.

    `out[t, c] = bias[c] + sum_k weight[c, k] * in[t - K + 1 + k, c]`. The short convolution of
    Mamba (Gu & Dao 2023, arXiv:2312.00752), of gated delta nets and of LFM2. An activation after it
    is the caller's.

    The weight is `[C, K, 1]`, as in MLX conversions; Hugging Face files hold `[C, 1, K]`.

    Args:
        channels: C.
        kernel: K, how many inputs an output sees; upstream `conv_kernel`, `linear_conv_kernel_dim`,
            `conv_L_cache`.
        bias: whether each channel has one.

    Raises:
        ValueError: there are no channels, or the kernel sees no input.
    """

    def __init__(self, channels: int, kernel: int, *, bias: bool = False) -> None:
        super().__init__()
        check_least("CausalConv1d", [("channels", channels), ("kernel", kernel)])
        scale = kernel**-0.5
        self.weight = mx.random.uniform(low=-scale, high=scale, shape=(channels, kernel, 1))
        if bias:
            self.bias = mx.zeros((channels,))

    @property
    def state_shape(self) -> tuple[int, int]:
        """The shape `(K - 1, C)` of one sequence's state, in the activations' dtype."""
        channels, kernel, _ = self.weight.shape
        return kernel - 1, channels

    def __call__(self, x: mx.array, state: mx.array) -> tuple[mx.array, mx.array]:
        """Filter this chunk, and say what the next one needs.

        Args:
            x: `[B, T, C]`.
            state: the last K - 1 inputs before it, `[B, K - 1, C]`; zeros before the first token.

        Returns:
            The outputs `[B, T, C]` and the new state, both in the dtype of `x`.
        """
        length = x.shape[1]
        inputs = mx.concatenate([state.astype(x.dtype), x], axis=1)  # (B, K - 1 + T, C)
        out = self._step(inputs) if length == 1 else self._filter(inputs, length)
        if "bias" in self:
            out = out + self.bias
        # A copy: a slice would keep the whole chunk's buffer alive as long as the state.
        return out.astype(x.dtype), mx.contiguous(inputs[:, length:])

    def _step(self, inputs: mx.array) -> mx.array:
        taps = self.weight[..., 0].T  # (K, C)
        return (inputs * taps).sum(axis=1, keepdims=True)

    def _filter(self, inputs: mx.array, length: int) -> mx.array:
        channels, kernel, _ = self.weight.shape
        if not on_cpu():
            return mx.conv1d(inputs, self.weight, groups=channels)
        # MLX's grouped convolution is slow on a CPU; K shifted products are the same sum.
        taps = self.weight[..., 0].T
        out = inputs[:, :length] * taps[0]
        for shift in range(1, kernel):
            out = out + inputs[:, shift : shift + length] * taps[shift]
        return out
