"""The Mamba-2 mixer (Dao & Gu 2024, arXiv:2405.21060), as NVIDIA's hybrids have it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import mlx.core as mx
import mlx.nn as nn

from phyla.family import Recurrent, StateCache
from phyla.nn.activations import silu, swiglu
from phyla.nn.checks import STATE_DTYPES, check_choice, check_least, check_multiple
from phyla.nn.conv import CausalConv1d
from phyla.nn.ssd import ssd
from phyla.nn.wide import Wide


@dataclass(frozen=True, kw_only=True)
class Mamba2Shape:
    """The numbers of a Mamba-2 mixer.

    Attributes:
        heads: H; upstream `mamba_num_heads`.
        head_dim: P, width of a head; `H * P` is the inner width.
        groups: G, into how many groups of equal size the heads fall; upstream `n_groups`.
        state: N, width of the state of each channel; upstream `ssm_state_size`.
        kernel: how many tokens the convolution sees; upstream `conv_kernel`.
        conv_bias: whether it has a bias; upstream `use_conv_bias`.
        bias: whether the two projections have one.
        norm_eps: epsilon of the gated norm.
        step_limits: the least and the largest step size; upstream `time_step_limit`. The keys
            `time_step_min` and `time_step_max` are of the initialization and limit nothing.
        state_dtype: what the state is kept in; upstream `mamba_ssm_cache_dtype`.

    Raises:
        ValueError: the numbers do not fit together.
    """

    heads: int
    head_dim: int
    groups: int
    state: int
    kernel: int
    conv_bias: bool = True
    bias: bool = False
    norm_eps: float
    step_limits: tuple[float, float] = (0.0, math.inf)
    state_dtype: str = "float32"

    def __post_init__(self) -> None:
        names = ("heads", "head_dim", "groups", "state", "kernel")
        check_least("Mamba2Shape", [(name, getattr(self, name)) for name in names])
        check_multiple("Mamba2Shape", ("heads", self.heads), ("groups", self.groups))
        check_choice("Mamba2Shape", "state_dtype", self.state_dtype, STATE_DTYPES)
        least, largest = self.step_limits
        if not 0.0 <= least <= largest:
            raise ValueError(
                "Mamba2Shape: step_limits should be two numbers from 0 on, the smaller one first; "
                f"found {self.step_limits!r}."
            )

    @property
    def inner(self) -> int:
        """The inner width."""
        return self.heads * self.head_dim

    @property
    def channels(self) -> int:
        """How many channels the convolution filters: inputs, and `b` and `c` of each group."""
        return self.inner + 2 * self.groups * self.state


class Mamba2(Wide):
    """Projection, short convolution, recurrence (`phyla.nn.ssd`), gated norm, projection.

    Its states are the last K - 1 inputs of the convolution, `[B, K - 1, channels]`, in the
    activations' dtype, and the recurrence's state, `[B, H, P, N]`. Step sizes, the recurrence and
    the norm are computed in float32.

    Args:
        dim: D, width of the hidden states.
        shape: its numbers.
    """

    float32 = ("A_log", "D", "dt_bias")

    def __init__(self, dim: int, shape: Mamba2Shape) -> None:
        super().__init__()
        self.shape = shape
        self.in_proj = nn.Linear(dim, shape.inner + shape.channels + shape.heads, bias=shape.bias)
        self.conv1d = CausalConv1d(shape.channels, shape.kernel, bias=shape.conv_bias)
        self.A_log = mx.zeros((shape.heads,))
        self.D = mx.ones((shape.heads,))
        self.dt_bias = mx.zeros((shape.heads,))
        self.norm = GatedGroupRMSNorm(shape.inner, shape.groups, shape.norm_eps)
        self.out_proj = nn.Linear(shape.inner, dim, bias=shape.bias)

    @property
    def cache_kind(self) -> Recurrent:
        """What this block needs remembered."""
        state = (self.shape.heads, self.shape.head_dim, self.shape.state)
        return Recurrent(
            shapes=(self.conv1d.state_shape, state), dtypes=(None, self.shape.state_dtype)
        )

    def __call__(self, x: mx.array, cache: StateCache) -> mx.array:
        """`[B, T, D]` to `[B, T, D]`."""
        shape = self.shape
        rows, length, _ = x.shape
        gate, mixed, dt = mx.split(
            self.in_proj(x), [shape.inner, shape.inner + shape.channels], axis=-1
        )
        window, state = cache.states
        mixed, window = self.conv1d(mixed, window)
        values, b, c = mx.split(
            silu(mixed), [shape.inner, shape.inner + shape.groups * shape.state], axis=-1
        )
        values = values.reshape(rows, length, shape.heads, shape.head_dim).astype(mx.float32)
        out, after = ssd(
            values,
            self._step_sizes(dt),
            -mx.exp(self.A_log.astype(mx.float32)),
            b.reshape(rows, length, shape.groups, shape.state),
            c.reshape(rows, length, shape.groups, shape.state),
            state,
        )
        cache.advance(window, after.astype(state.dtype), tokens=length)
        out = out + self.D.astype(mx.float32)[:, None] * values
        return self.out_proj(self.norm(out.reshape(rows, length, -1), gate))

    def _step_sizes(self, dt: mx.array) -> mx.array:
        least, largest = self.shape.step_limits
        raw = dt.astype(mx.float32) + self.dt_bias.astype(mx.float32)
        sizes = mx.logaddexp(raw, 0.0)  # softplus, which is positive
        if least > 0.0:
            sizes = mx.maximum(sizes, least)
        return mx.minimum(sizes, largest) if largest < math.inf else sizes


class GatedGroupRMSNorm(nn.Module):
    """`norm(x * silu(gate)) * weight`, the RMS taken over each of `groups` parts of the width.

    Args:
        dim: width of the last axis.
        groups: how many parts.
        eps: added to the mean of the squares.
    """

    def __init__(self, dim: int, groups: int, eps: float) -> None:
        super().__init__()
        check_least("GatedGroupRMSNorm", [("dim", dim), ("groups", groups)])
        check_multiple("GatedGroupRMSNorm", ("dim", dim), ("groups", groups))
        self.weight = mx.ones((dim,))
        self.groups = groups
        self.eps = eps

    def __call__(self, x: mx.array, gate: mx.array) -> mx.array:
        """`[..., dim]` to `[..., dim]`, in the dtype of `gate`; computed in float32."""
        gated = swiglu(gate.astype(mx.float32), x.astype(mx.float32))
        parts = gated.reshape(*x.shape[:-1], self.groups, -1)
        normed = mx.fast.rms_norm(parts, None, self.eps).reshape(x.shape)
        return (normed * self.weight.astype(mx.float32)).astype(gate.dtype)
