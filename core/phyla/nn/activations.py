"""Activation functions, in the form that is fast on the device at hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import mlx.core as mx
import mlx.nn as nn

from phyla.backend import on_cpu

GatedActivation: TypeAlias = Callable[[mx.array, mx.array], mx.array]
"""What stands between the two inner products of a gated MLP and its last.

A function of gate and up, both `[..., hidden]`, that gives `[..., hidden]`, such as `swiglu`.
"""

_LOG2_E = math.log2(math.e)

# The tanh form of GELU is x * sigmoid(x * (_GELU_1 + _GELU_3 * x**2)).
_GELU_1 = 2 * math.sqrt(2 / math.pi)
_GELU_3 = 0.044715 * _GELU_1


def silu(x: mx.array) -> mx.array:
    """`x * sigmoid(x)` of an array of any shape; on a CPU by a power of two, as in `swiglu`."""
    return x / (1 + mx.power(2.0, x * -_LOG2_E)) if on_cpu() else nn.silu(x)


def gelu_tanh(x: mx.array) -> mx.array:
    """GELU in its tanh form (Hendrycks & Gimpel 2016, arXiv:1606.08415), of an array of any shape.

    On a CPU by a power of two, as in `geglu`.
    """
    if on_cpu():
        exponent = x * (-_LOG2_E * _GELU_1 - _LOG2_E * _GELU_3 * x.square())
        return x / (1 + mx.power(2.0, exponent))
    return nn.gelu_approx(x)


@mx.compile
def _fused_swiglu(gate: mx.array, up: mx.array) -> mx.array:
    return nn.silu(gate) * up


def swiglu(gate: mx.array, up: mx.array) -> mx.array:
    """`silu(gate) * up` (Shazeer 2020, arXiv:2002.05202); both `[..., hidden]`, and so the result.

    A GPU runs it as one compiled kernel. On a CPU compiling needs a C++ compiler and gains nothing;
    there a power of two and a division cost 40 % of what the sigmoid does.
    """
    if on_cpu():
        return gate / (1 + mx.power(2.0, gate * -_LOG2_E)) * up
    return _fused_swiglu(gate, up)


@mx.compile
def _fused_geglu(gate: mx.array, up: mx.array) -> mx.array:
    return nn.gelu_approx(gate) * up


def geglu(gate: mx.array, up: mx.array) -> mx.array:
    """`gelu(gate) * up` (Shazeer 2020, arXiv:2002.05202), GELU in its tanh form, as Gemma has it.

    Both are `[..., hidden]`, and so is the result. Compiled on a GPU only, as `swiglu`; on a CPU the
    power costs half of the hyperbolic tangent.
    """
    if on_cpu():
        exponent = gate * (-_LOG2_E * _GELU_1 - _LOG2_E * _GELU_3 * gate.square())
        return gate / (1 + mx.power(2.0, exponent)) * up
    return _fused_geglu(gate, up)
