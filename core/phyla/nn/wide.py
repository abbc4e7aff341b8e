"""Parameters that stay in float32 where everything else is held in 16 bits."""

from __future__ import annotations

from typing import ClassVar

import mlx.nn as nn


class Wide(nn.Module):
    """A block some of whose parameters lose too much in 16 bits, such as decays and selection biases.

    They are small, and the block computes with them in float32.

    Attributes:
        float32: their names, from the block on; one of a linear map counts while it is not packed.
    """

    float32: ClassVar[tuple[str, ...]]


def wide_parameters(model: nn.Module) -> frozenset[str]:
    """The names, in the model, of all such parameters."""
    return frozenset(
        f"{path}.{name}" if path else name
        for path, module in model.named_modules()
        if isinstance(module, Wide)
        for name in module.float32
    )
