"""Parakeet's encoder: a Fast Conformer (Rekesh et al. 2023, arXiv:2305.05084) over mel frames.

The frames are what transformers' feature extractor makes of one clip: a last frame of silence
follows those of the sound, and what comes of it is masked or not as it is there.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import mlx.core as mx
import mlx.nn as nn

from phyla.nn import CausalConv1d, silu
from phyla_families.nemotron_h.relative_attention import RelativeAttention, distance_table

if TYPE_CHECKING:
    from phyla_families.nemotron_h.omni_config import SoundConfig

_NORM_EPS = 1e-5


class SoundEncoder(nn.Module):
    """Mel frames of 10 ms to features of 80 ms."""

    def __init__(self, config: SoundConfig) -> None:
        super().__init__()
        self._dim = config.hidden_size
        self._scale = math.sqrt(config.hidden_size) if config.scale_input else 1.0
        self.subsampling = Subsampling(config)
        self.layers = [ConformerLayer(config) for _ in range(config.num_hidden_layers)]

    def __call__(self, mel: mx.array) -> mx.array:
        """`[frames, bins]`, the last frame silent, to `[frames / factor, D]`, rounded up."""
        mel = mel.astype(self.layers[0].norm_out.weight.dtype)
        x, valid = self.subsampling(mel, mel.shape[0] - 1)
        x = x * self._scale
        distances = distance_table(x.shape[0], self._dim).astype(x.dtype)
        for layer in self.layers:
            x = layer(x, distances, valid)
        return x


class Subsampling(nn.Module):
    """Convolutions that halve time and frequency: the first a full one, then separable ones."""

    def __init__(self, config: SoundConfig) -> None:
        super().__init__()
        channels = config.subsampling_conv_channels
        layers: list[nn.Module] = [nn.Conv2d(1, channels, 3, stride=2, padding=1), nn.ReLU()]
        for _ in range(config.halvings - 1):
            layers += [
                nn.Conv2d(channels, channels, 3, stride=2, padding=1, groups=channels),
                nn.Conv2d(channels, channels, 1),
                nn.ReLU(),
            ]
        self.layers = layers
        bins = config.num_mel_bins // config.subsampling_factor
        self.linear = nn.Linear(channels * bins, config.hidden_size)

    def __call__(self, mel: mx.array, valid: int) -> tuple[mx.array, int]:
        """`[frames, bins]`, so many valid, to `[frames / factor, D]` and how many are valid."""
        x = mel[None, :, :, None]
        for layer in self.layers:
            before = x.shape[1]
            x = layer(x)
            if isinstance(layer, nn.Conv2d):
                if x.shape[1] < before:
                    valid = -(-valid // 2)
                x = mx.where((mx.arange(x.shape[1]) < valid)[:, None, None], x, 0)
        # Channel by channel, each with its bins.
        flat = x[0].swapaxes(1, 2).reshape(x.shape[1], -1)
        return self.linear(flat), valid


class ConformerLayer(nn.Module):
    """Half a feed-forward branch, attention, convolution, the other half, and a norm."""

    def __init__(self, config: SoundConfig) -> None:
        super().__init__()
        dim = config.hidden_size
        self.feed_forward1 = FeedForward(config)
        self.self_attn = RelativeAttention(
            dim, config.num_attention_heads, bias=config.attention_bias
        )
        self.conv = ConvolutionModule(config)
        self.feed_forward2 = FeedForward(config)
        self.norm_feed_forward1 = nn.LayerNorm(dim, _NORM_EPS)
        self.norm_self_att = nn.LayerNorm(dim, _NORM_EPS)
        self.norm_conv = nn.LayerNorm(dim, _NORM_EPS)
        self.norm_feed_forward2 = nn.LayerNorm(dim, _NORM_EPS)
        self.norm_out = nn.LayerNorm(dim, _NORM_EPS)

    def __call__(self, x: mx.array, distances: mx.array, valid: int) -> mx.array:
        """`[T, D]` to `[T, D]`."""
        x = x + 0.5 * self.feed_forward1(self.norm_feed_forward1(x))
        x = x + self.self_attn(self.norm_self_att(x), distances, valid)
        x = x + self.conv(self.norm_conv(x), valid)
        x = x + 0.5 * self.feed_forward2(self.norm_feed_forward2(x))
        return self.norm_out(x)


class FeedForward(nn.Module):
    """`linear2(silu(linear1(x)))`."""

    def __init__(self, config: SoundConfig) -> None:
        super().__init__()
        dim, hidden, bias = config.hidden_size, config.intermediate_size, config.attention_bias
        self.linear1 = nn.Linear(dim, hidden, bias=bias)
        self.linear2 = nn.Linear(hidden, dim, bias=bias)

    def __call__(self, x: mx.array) -> mx.array:
        """`[..., D]` to `[..., D]`."""
        return self.linear2(silu(self.linear1(x)))


class ConvolutionModule(nn.Module):
    """A gated linear unit, a filter over time for each channel, and a projection."""

    def __init__(self, config: SoundConfig) -> None:
        super().__init__()
        dim, bias = config.hidden_size, config.convolution_bias
        self._ahead = (config.conv_kernel_size - 1) // 2
        self.pointwise_conv1 = nn.Conv1d(dim, 2 * dim, 1, bias=bias)
        self.depthwise_conv = CausalConv1d(dim, config.conv_kernel_size, bias=bias)
        self.norm = FrozenBatchNorm(dim)
        self.pointwise_conv2 = nn.Conv1d(dim, dim, 1, bias=bias)

    def __call__(self, x: mx.array, valid: int) -> mx.array:
        """`[T, D]` to `[T, D]`."""
        values, gates = mx.split(self.pointwise_conv1(x[None]), 2, axis=-1)
        x = values * mx.sigmoid(gates)
        if valid < x.shape[1]:
            x = mx.where((mx.arange(x.shape[1]) < valid)[:, None], x, 0)
        # The filter looks ahead as far as back: one that looks back only, some frames later.
        silence = mx.zeros((1, *self.depthwise_conv.state_shape), x.dtype)
        filtered, _ = self.depthwise_conv(mx.pad(x, [(0, 0), (0, self._ahead), (0, 0)]), silence)
        normed = self.norm(filtered[:, self._ahead :])
        return self.pointwise_conv2(silu(normed))[0]


class FrozenBatchNorm(nn.Module):
    """Batch normalization by the averages of training (Ioffe & Szegedy 2015, arXiv:1502.03167)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = mx.ones((channels,))
        self.bias = mx.zeros((channels,))
        self.running_mean = mx.zeros((channels,))
        self.running_var = mx.ones((channels,))

    def __call__(self, x: mx.array) -> mx.array:
        """`[..., C]` to `[..., C]`, computed in float32."""
        mean, variance, weight, bias = (
            each.astype(mx.float32)
            for each in (self.running_mean, self.running_var, self.weight, self.bias)
        )
        scale = weight * mx.rsqrt(variance + _NORM_EPS)
        return ((x.astype(mx.float32) - mean) * scale + bias).astype(x.dtype)
