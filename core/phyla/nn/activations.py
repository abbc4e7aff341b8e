"""Activation functions, in the form that is fast on the device at hand."""

from __future__ import annotations

import mlx.core as mx
import mlx.nn as nn

from phyla.backend import on_cpu


@mx.compile
def _fused_swiglu(gate: mx.array, up: mx.array) -> mx.array:
    return nn.silu(gate) * up


def swiglu(gate: mx.array, up: mx.array) -> mx.array:
    """`silu(gate) * up` (Shazeer 2020, arXiv:2002.05202).

    A GPU runs it as one compiled kernel. On a CPU compiling needs a C++ compiler and gains nothing;
    there the division costs half of what the sigmoid does.
    """
    if on_cpu():
        return gate / (1 + mx.exp(-gate)) * up
    return _fused_swiglu(gate, up)
