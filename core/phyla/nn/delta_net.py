"""The gated delta net (Yang et al. 2024, arXiv:2412.06464) as Qwen3-Next and Qwen3.5 have it.

Queries, keys and values go through a short causal convolution; the gated delta rule reads and
writes one memory per value head; what it reads is normed, gated, and projected back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import mlx.core as mx
import mlx.nn as nn

from phyla.family import Recurrent, StateCache
from phyla.nn.activations import silu, swiglu
from phyla.nn.checks import check_least, check_multiple
from phyla.nn.conv import CausalConv1d
from phyla.nn.delta_rule import gated_delta_rule
from phyla.nn.fusion import Fusable, join_linears
from phyla.nn.outputs import reorder_outputs
from phyla.nn.wide import Wide

if TYPE_CHECKING:
    from collections.abc import Sequence

# Added to the squared length of a query or key.
_LENGTH_EPS = 1e-6


@dataclass(frozen=True, kw_only=True)
class DeltaNetShape:
    """The numbers of a gated delta net, with their keys in config.json.

    Attributes:
        key_heads: heads of queries and keys; `linear_num_key_heads`.
        value_heads: heads of values, gates and memories, a multiple of `key_heads`; key head k
            serves neighbouring ones. `linear_num_value_heads`.
        key_dim: width of a query or key; `linear_key_head_dim`.
        value_dim: width of a value; `linear_value_head_dim`.
        kernel: how many tokens the convolution sees; `linear_conv_kernel_dim`.
        norm_eps: epsilon of the norm before the gate.
        grouped: the projections are two, `in_proj_qkvz` and `in_proj_ba`, whose outputs lie key
            head by key head (Qwen3-Next), instead of four, `in_proj_qkv`, `_z`, `_b` and `_a`.

    Raises:
        ValueError: the numbers do not fit together.
    """

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    kernel: int
    norm_eps: float
    grouped: bool = False

    def __post_init__(self) -> None:
        names = ("key_heads", "value_heads", "key_dim", "value_dim", "kernel")
        check_least("DeltaNetShape", [(name, getattr(self, name)) for name in names])
        many, few = ("value_heads", self.value_heads), ("key_heads", self.key_heads)
        check_multiple("DeltaNetShape", many, few)

    @property
    def keys_width(self) -> int:
        """Values in the keys of a token."""
        return self.key_heads * self.key_dim

    @property
    def values_width(self) -> int:
        """Values in the values of a token."""
        return self.value_heads * self.value_dim

    @property
    def conv_width(self) -> int:
        """Channels of the convolution: queries, keys, values."""
        return 2 * self.keys_width + self.values_width

    @property
    def cache_kind(self) -> Recurrent:
        """The convolution's last inputs, and a memory per value head in float32."""
        return Recurrent(
            shapes=(
                (self.kernel - 1, self.conv_width),
                (self.value_heads, self.key_dim, self.value_dim),
            ),
            dtypes=(None, "float32"),
        )


class GatedDeltaNet(Fusable, Wide):
    """Attention in linear time: a memory of fixed size, updated by the gated delta rule.

    For a token x, with sigma the logistic function::

        q, k, v = silu(conv(qkv(x)))         q, k of length 1, q divided by sqrt(key_dim)
        beta    = sigma(b(x))
        g       = -exp(A_log) softplus(a(x) + dt_bias)
        o       = gated_delta_rule(q, k, v, g, beta)
        y       = out(norm(o) silu(z(x)))    norm per value head

    beta, g, the rule and the gate are in float32, the rest in the activations' dtype. The states
    are the last K - 1 inputs of the convolution, `[B, K - 1, conv_width]`, in the activations'
    dtype, and the memories, `[B, value_heads, key_dim, value_dim]`, in float32.

    Args:
        dim: D, width of the hidden states.
        shape: its numbers.
    """

    float32 = ("A_log", "dt_bias")

    def __init__(self, dim: int, shape: DeltaNetShape) -> None:
        super().__init__()
        self.shape = shape
        heads = shape.value_heads
        if shape.grouped:
            self.in_proj_qkvz = _linear(dim, shape.conv_width + shape.values_width)
            self.in_proj_ba = _linear(dim, 2 * heads)
        else:
            self.in_proj_qkv = _linear(dim, shape.conv_width)
            self.in_proj_z = _linear(dim, shape.values_width)
            self.in_proj_b = _linear(dim, heads)
            self.in_proj_a = _linear(dim, heads)
        self.conv1d = CausalConv1d(shape.conv_width, shape.kernel)
        self.A_log = mx.zeros((heads,))
        self.dt_bias = mx.zeros((heads,))
        self.norm = nn.RMSNorm(shape.value_dim, shape.norm_eps)
        self.out_proj = _linear(shape.values_width, dim)
        self.ordered = not shape.grouped

    @property
    def cache_kind(self) -> Recurrent:
        """What this block needs remembered."""
        return self.shape.cache_kind

    def fuse(self) -> None:
        """Make one projection, `in_proj`, whose outputs are q, k, v, z, b, a; or two, if need be."""
        if "in_proj_qkv" in self:
            wide = join_linears([self.in_proj_qkv, self.in_proj_z])
            narrow = join_linears([self.in_proj_b, self.in_proj_a])
            if wide is None or narrow is None:
                return
            del self.in_proj_qkv, self.in_proj_z, self.in_proj_b, self.in_proj_a
            self.in_proj_qkvz, self.in_proj_ba = wide, narrow
        elif not self.ordered:
            reorder_outputs(self.in_proj_qkvz, _qkvz_order(self.shape))
            reorder_outputs(self.in_proj_ba, _ba_order(self.shape))
            self.ordered = True
        if "in_proj_qkvz" in self:
            joined = join_linears([self.in_proj_qkvz, self.in_proj_ba])
            if joined is not None:
                del self.in_proj_qkvz, self.in_proj_ba
                self.in_proj = joined

    def __call__(self, x: mx.array, cache: StateCache) -> mx.array:
        """Read and update the memories with this chunk; `[B, T, D]` to `[B, T, D]`."""
        shape = self.shape
        rows, length, _ = x.shape
        filtered, memories = cache.states
        qkv, z, b, a = self._project(x)
        qkv, filtered = self.conv1d(qkv, filtered)
        queries, keys, values = mx.split(
            silu(qkv), [shape.keys_width, 2 * shape.keys_width], axis=-1
        )
        queries = _unit(queries.reshape(rows, length, shape.key_heads, shape.key_dim))
        keys = _unit(keys.reshape(rows, length, shape.key_heads, shape.key_dim))
        values = values.reshape(rows, length, shape.value_heads, shape.value_dim)
        out, memories = gated_delta_rule(
            queries * shape.key_dim**-0.5,
            keys,
            values,
            decay=_decay(a, self.A_log, self.dt_bias),
            beta=mx.sigmoid(b.astype(mx.float32)),
            state=memories,
        )
        cache.advance(filtered, memories, tokens=length)
        # A norm stored in float32 must not widen what follows.
        out = self.norm(out.astype(x.dtype)).astype(mx.float32)
        gate = z.reshape(out.shape).astype(mx.float32)
        out = swiglu(gate, out).astype(x.dtype)
        return self.out_proj(out.reshape(rows, length, -1))

    def _project(self, x: mx.array) -> tuple[mx.array, mx.array, mx.array, mx.array]:
        """What goes through the convolution, and z, b and a, each `[B, T, ...]`."""
        shape, heads = self.shape, self.shape.value_heads
        if "in_proj" in self:
            wide = shape.conv_width + shape.values_width
            qkv, z, b, a = mx.split(
                self.in_proj(x), [shape.conv_width, wide, wide + heads], axis=-1
            )
            return qkv, z, b, a
        if "in_proj_qkvz" not in self:
            return self.in_proj_qkv(x), self.in_proj_z(x), self.in_proj_b(x), self.in_proj_a(x)
        qkvz, ba = self.in_proj_qkvz(x), self.in_proj_ba(x)
        if not self.ordered:
            qkvz = qkvz[..., mx.array(_qkvz_order(shape))]
            ba = ba[..., mx.array(_ba_order(shape))]
        qkv, z = mx.split(qkvz, [shape.conv_width], axis=-1)
        b, a = mx.split(ba, [heads], axis=-1)
        return qkv, z, b, a


def _linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


def _unit(x: mx.array) -> mx.array:
    """Vectors of length 1, in float32: `x / sqrt(|x|^2 + eps)`."""
    dim = x.shape[-1]
    return mx.fast.rms_norm(x.astype(mx.float32), None, _LENGTH_EPS / dim) * dim**-0.5


def _decay(a: mx.array, a_log: mx.array, dt_bias: mx.array) -> mx.array:
    """The logarithms `[B, T, V]` of the decays, in float32, in which no exponential overflows."""
    rate = mx.exp(a_log.astype(mx.float32))
    return -rate * nn.softplus(a.astype(mx.float32) + dt_bias.astype(mx.float32))


def _qkvz_order(shape: DeltaNetShape) -> list[int]:
    """Where q, k, v and z of all heads are in outputs that lie key head by key head."""
    group = shape.value_heads // shape.key_heads * shape.value_dim
    return _gathered(shape.key_heads, (shape.key_dim, shape.key_dim, group, group))


def _ba_order(shape: DeltaNetShape) -> list[int]:
    group = shape.value_heads // shape.key_heads
    return _gathered(shape.key_heads, (group, group))


def _gathered(heads: int, widths: Sequence[int]) -> list[int]:
    """The first part of every head, then the second of every head, and so on."""
    whole = sum(widths)
    return [
        head * whole + start + index
        for start, width in zip(_starts(widths), widths, strict=True)
        for head in range(heads)
        for index in range(width)
    ]


def _starts(widths: Sequence[int]) -> list[int]:
    return [sum(widths[:part]) for part in range(len(widths))]
