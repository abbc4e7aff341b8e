"""From the tower's patches to soft tokens: four neighbours become one, as often as it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
import mlx.nn as nn

from phyla_families.minicpm.vision import WINDOW

if TYPE_CHECKING:
    from phyla_families.minicpm.tower_config import TowerConfig

_EPS = 1e-6  # the class's own, whatever the tower's


class Merger(nn.Module):
    """One MLP for each round; the last leads to the width of the text."""

    def __init__(self, config: TowerConfig, text_dims: int) -> None:
        super().__init__()
        dims, rounds = config.hidden_size, config.merger_times
        self.mlp = [
            MergerMLP(dims, dims if index + 1 < rounds else text_dims) for index in range(rounds)
        ]

    def __call__(self, x: mx.array) -> mx.array:
        """`[N, D]`, sorted by `merge_order`, to `[N / 4**rounds, text_dims]`."""
        for mlp in self.mlp:
            x = mlp(x.reshape(x.shape[0] // WINDOW, -1))
        return x


class MergerMLP(nn.Module):
    """`linear_2(gelu(linear_1(norm(x))))`, with GELU as it is, not approximated."""

    def __init__(self, dims: int, out: int) -> None:
        super().__init__()
        self.pre_norm = nn.LayerNorm(WINDOW * dims, eps=_EPS)
        self.linear_1 = nn.Linear(WINDOW * dims, WINDOW * dims)
        self.linear_2 = nn.Linear(WINDOW * dims, out)

    def __call__(self, x: mx.array) -> mx.array:
        """`[N, 4 * dims]` to `[N, out]`."""
        return self.linear_2(nn.gelu(self.linear_1(self.pre_norm(x))))
