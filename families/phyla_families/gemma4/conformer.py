"""Gemma 4's audio tower: a conformer over log-mel frames (Gulati et al., 2020, arXiv:2005.08100).

After the Universal Speech Model (Zhang et al., 2023, arXiv:2303.01037). A frame sees itself and
those shortly before it, never one that follows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
import mlx.nn as nn

from phyla.nn import CausalConv1d, silu
from phyla_families.gemma4.clipped import ClippedLinear
from phyla_families.gemma4.local_attention import LocalAttention
from phyla_families.gemma4.pixels import working_type

if TYPE_CHECKING:
    from phyla_families.gemma4.media_config import ConformerConfig


class Conformer(nn.Module):
    """Frames of 10 ms in, features of soft tokens of 40 ms out."""

    def __init__(self, config: ConformerConfig) -> None:
        super().__init__()
        self.subsample_conv_projection = Subsampling(config)
        self.layers = [ConformerLayer(config) for _ in range(config.num_hidden_layers)]
        self.output_proj = nn.Linear(config.hidden_size, config.output_proj_dims)

    def __call__(self, mel: mx.array) -> mx.array:
        """`[frames, bins]` to float32 `[ceil(ceil(frames / 2) / 2), out]`."""
        dtype = working_type(self.layers[0].norm_out.weight.dtype)
        x = self.subsample_conv_projection(mel.astype(dtype))
        for layer in self.layers:
            x = layer(x)
        return self.output_proj(x).astype(mx.float32)


class Subsampling(nn.Module):
    """Two convolutions that halve time and frequency, and a projection of what a frame holds."""

    def __init__(self, config: ConformerConfig) -> None:
        super().__init__()
        first, second = config.subsampling_conv_channels
        self.layer0 = Halving(1, first, eps=config.rms_norm_eps)
        self.layer1 = Halving(first, second, eps=config.rms_norm_eps)
        self.input_proj_linear = nn.Linear(
            config.bins // 4 * second, config.hidden_size, bias=False
        )

    def __call__(self, mel: mx.array) -> mx.array:
        """`[frames, bins]` to `[frames / 4, D]`, rounded up."""
        x = self.layer1(self.layer0(mel[None, :, :, None]))
        return self.input_proj_linear(x.reshape(x.shape[1], -1))


class Halving(nn.Module):
    """A convolution with stride 2, a LayerNorm over channels without bias, and ReLU."""

    def __init__(self, channels: int, out: int, *, eps: float) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, out, 3, stride=2, padding=1, bias=False)
        self.norm = nn.LayerNorm(out, eps=eps, bias=False)

    def __call__(self, x: mx.array) -> mx.array:
        """`[1, frames, bins, channels]` to `[1, frames / 2, bins / 2, out]`, rounded up."""
        return nn.relu(self.norm(self.conv(x)))


class ConformerLayer(nn.Module):
    """Half a feed-forward branch, attention, convolution, the other half, and a norm."""

    def __init__(self, config: ConformerConfig) -> None:
        super().__init__()
        dims, eps = config.hidden_size, config.rms_norm_eps
        self._bound = config.gradient_clipping
        self.feed_forward1 = FeedForward(config)
        self.feed_forward2 = FeedForward(config)
        self.self_attn = LocalAttention(config)
        self.lconv1d = LightConvolution(config)
        self.norm_pre_attn = nn.RMSNorm(dims, eps)
        self.norm_post_attn = nn.RMSNorm(dims, eps)
        self.norm_out = nn.RMSNorm(dims, eps)

    def __call__(self, x: mx.array) -> mx.array:
        """`[T, D]` to `[T, D]`."""
        x = self.feed_forward1(x)
        attended = self.self_attn(self.norm_pre_attn(_bounded(x, self._bound)))
        x = x + self.norm_post_attn(_bounded(attended, self._bound))
        x = self.feed_forward2(self.lconv1d(x))
        return self.norm_out(_bounded(x, self._bound))


class FeedForward(nn.Module):
    """Two projections between two norms, added by `residual_weight`."""

    def __init__(self, config: ConformerConfig) -> None:
        super().__init__()
        dims, eps, clipped = config.hidden_size, config.rms_norm_eps, config.use_clipped_linears
        self._weight, self._bound = config.residual_weight, config.gradient_clipping
        self.ffw_layer_1 = ClippedLinear(dims, 4 * dims, clipped=clipped)
        self.ffw_layer_2 = ClippedLinear(4 * dims, dims, clipped=clipped)
        self.pre_layer_norm = nn.RMSNorm(dims, eps)
        self.post_layer_norm = nn.RMSNorm(dims, eps)

    def __call__(self, x: mx.array) -> mx.array:
        """`[T, D]` to `[T, D]`."""
        inner = silu(self.ffw_layer_1(self.pre_layer_norm(_bounded(x, self._bound))))
        out = _bounded(self.ffw_layer_2(inner), self._bound)
        return x + self.post_layer_norm(out) * self._weight


class LightConvolution(nn.Module):
    """A gated linear unit, then each channel filtered over time (arXiv:1901.10430)."""

    def __init__(self, config: ConformerConfig) -> None:
        super().__init__()
        dims, eps, clipped = config.hidden_size, config.rms_norm_eps, config.use_clipped_linears
        self._bound = config.gradient_clipping
        self.linear_start = ClippedLinear(dims, 2 * dims, clipped=clipped)
        self.linear_end = ClippedLinear(dims, dims, clipped=clipped)
        self.depthwise_conv1d = CausalConv1d(dims, config.conv_kernel_size)
        self.pre_layer_norm = nn.RMSNorm(dims, eps)
        self.conv_norm = nn.RMSNorm(dims, eps)

    def __call__(self, x: mx.array) -> mx.array:
        """`[T, D]` to `[T, D]`."""
        values, gates = mx.split(self.linear_start(self.pre_layer_norm(x)), 2, axis=-1)
        silence = mx.zeros((1, *self.depthwise_conv1d.state_shape), x.dtype)
        filtered, _ = self.depthwise_conv1d((values * mx.sigmoid(gates))[None], silence)
        normed = self.conv_norm(_bounded(filtered[0], self._bound))
        return x + self.linear_end(silu(normed))


def _bounded(x: mx.array, bound: float) -> mx.array:
    return mx.clip(x, -bound, bound)
