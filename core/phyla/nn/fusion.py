"""Joins linear maps of one input into one, once their weights are loaded.

One larger product costs less than several small ones, on every device. A checkpoint knows the parts
by their own names, so joining comes after loading.
"""

from __future__ import annotations

from abc import abstractmethod
from copy import copy
from typing import TYPE_CHECKING

import mlx.core as mx
import mlx.nn as nn

if TYPE_CHECKING:
    from collections.abc import Sequence

# What a linear map may hold that has one row, or one value, for each output.
_BY_OUTPUT = ("weight", "bias", "scales", "biases")


class Fusable(nn.Module):
    """A block that can join some of its parts."""

    @abstractmethod
    def fuse(self) -> None:
        """Join what can be joined, in place; the block computes the same as before."""


def fuse(model: nn.Module) -> None:
    """Join what can be joined in all blocks of `model`, in place, one after another.

    Weights have to be loaded. What a block computes, and the shapes of that, do not change.
    """
    for module in model.modules():
        if isinstance(module, Fusable):
            module.fuse()
            # Block by block, so that no more than one block is held twice.
            mx.eval(module.parameters())


def join_linears(parts: Sequence[nn.Module]) -> nn.Module | None:
    """One map whose output is those of `parts`, in order; None if they are not of one kind.

    Args:
        parts: `nn.Linear` or `nn.QuantizedLinear`, each `[..., in]` to `[..., out_i]`.

    Returns:
        A map of their kind, `[..., in]` to `[..., out_0 + out_1 + ...]`.
    """
    if len({_kind(part) for part in parts}) > 1 or not isinstance(
        parts[0], nn.Linear | nn.QuantizedLinear
    ):
        return None
    joined = copy(parts[0])
    for name in _BY_OUTPUT:
        if name in joined:
            joined[name] = mx.concatenate([part[name] for part in parts])
    return joined


def _kind(part: nn.Module) -> tuple[object, ...]:
    held = tuple((name, str(part[name].dtype)) for name in _BY_OUTPUT if name in part)
    if isinstance(part, nn.QuantizedLinear):
        return (type(part), part.bits, part.group_size, part.mode, *held)
    return (type(part), *held)
