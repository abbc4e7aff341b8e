from __future__ import annotations

import math
from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np
import pytest

from phyla.nn import geglu, swiglu

if TYPE_CHECKING:
    from collections.abc import Callable

    from phyla.nn import GatedActivation

VALUES = [-1e30, -200.0, -30.0, -3.0, -0.5, -1e-6, 0.0, 1e-6, 0.5, 3.0, 30.0, 200.0, 1e30]


def silu(x: float) -> float:
    return x / (1 + math.exp(min(-x, 700.0)))


def gelu_tanh(x: float) -> float:
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3) if abs(x) < 1e9 else x
    return 0.5 * x * (1 + math.tanh(inner))


@pytest.mark.parametrize(("function", "definition"), [(swiglu, silu), (geglu, gelu_tanh)])
def test_an_activation_is_its_definition_at_every_size(
    function: GatedActivation, definition: Callable[[float], float]
) -> None:
    gate, up = mx.array(VALUES), mx.full((len(VALUES),), 0.5)
    expected = np.array([definition(value) * 0.5 for value in VALUES])
    np.testing.assert_allclose(np.array(function(gate, up)), expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("function", [swiglu, geglu])
def test_an_activation_keeps_its_type(function: GatedActivation) -> None:
    gate = mx.array([1.0, -2.0]).astype(mx.bfloat16)
    assert function(gate, gate).dtype == mx.bfloat16
