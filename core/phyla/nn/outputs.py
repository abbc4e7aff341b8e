"""Changes the order of a linear map's outputs, once its weights are loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
import mlx.nn as nn

if TYPE_CHECKING:
    from collections.abc import Sequence

# What a linear map may hold that has one row, or one value, for each output.
_BY_OUTPUT = ("weight", "bias", "scales", "biases")


def reorder_outputs(part: nn.Module, order: Sequence[int]) -> None:
    """Make output i of `part` what output `order[i]` was, in place; packed weights stay packed.

    Args:
        part: an `nn.Linear` or an `nn.QuantizedLinear`, `[..., in]` to `[..., out]`.
        order: a permutation of its `out` outputs.
    """
    rows = mx.array(list(order))
    for name in _BY_OUTPUT:
        if name in part:
            part[name] = part[name][rows]
