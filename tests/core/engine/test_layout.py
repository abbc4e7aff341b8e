"""Laying matrices out by column changes nothing but how they lie."""

from __future__ import annotations

import mlx.core as mx
import mlx.nn as nn

from phyla.engine.layout import arrange_for_cpu


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.up = nn.Linear(8, 24)
        self.down = nn.Linear(24, 8)


def test_values_shapes_and_results_stay() -> None:
    block = Block()
    block.down.weight = block.down.weight.astype(mx.bfloat16)
    before = {name: mx.array(block[name].weight) for name in ("embed", "up", "down")}
    x = mx.random.normal((3, 8))
    lookup, product, head = block.embed(mx.array([3, 5])), block.up(x), block.embed.as_linear(x)
    arrange_for_cpu(block)
    for name, weight in before.items():
        assert mx.array_equal(block[name].weight, weight)
    assert mx.array_equal(block.embed(mx.array([3, 5])), lookup)
    assert mx.allclose(block.up(x), product, atol=1e-6)
    assert mx.allclose(block.embed.as_linear(x), head, atol=1e-6)
