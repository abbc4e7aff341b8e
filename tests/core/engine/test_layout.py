"""Laying matrices out for a CPU changes where numbers lie and nothing else."""

from __future__ import annotations

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from phyla.engine.layout import TurningEmbedding, TurningLinear, arrange_for_cpu

# More products than it takes until a matrix is turned.
_LONG = 80


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(256, 8)
        self.up = [nn.Linear(8, 24), nn.Linear(8, 128)]
        self.down = nn.Linear(24, 8)
        self.same = self.up[1]


def _by_row(weight: mx.array) -> bool:
    return np.asarray(weight).strides[1] == weight.itemsize


def test_values_shapes_and_results_stay() -> None:
    block = Block()
    block.down.weight = block.down.weight.astype(mx.bfloat16)
    before = [mx.array(module.weight) for module in (block.embed, *block.up, block.down)]
    x = mx.random.normal((3, 8))
    lookup, product, head = block.embed(mx.array([3, 5])), block.up[0](x), block.embed.as_linear(x)
    arrange_for_cpu(block)
    after = [module.weight for module in (block.embed, *block.up, block.down)]
    for old, new in zip(before, after, strict=True):
        assert mx.array_equal(old, new)
    assert mx.array_equal(block.embed(mx.array([3, 5])), lookup)
    assert mx.allclose(block.up[0](x), product, atol=1e-6)
    assert mx.allclose(block.embed.as_linear(x), head, atol=1e-6)


def test_a_layer_with_two_names_stays_one() -> None:
    block = Block()
    arrange_for_cpu(block)
    assert block.same is block.up[1]
    assert isinstance(block.same, TurningLinear)
    assert type(block.up[0]) is nn.Linear  # no head
    assert type(block.down) is nn.Linear  # fewer outputs than inputs: by row is best for all


@pytest.mark.parametrize("outputs", [128, 256])
@pytest.mark.parametrize("bias", [False, True])
def test_many_products_with_several_rows_turn_a_matrix_and_few_rows_turn_it_back(
    outputs: int, bias: bool
) -> None:
    plain = nn.Linear(8, outputs, bias=bias)
    block = nn.Sequential(plain)
    arrange_for_cpu(block)
    linear = block.layers[0]
    assert isinstance(linear, TurningLinear)
    layouts = [_by_row(linear.weight)]
    for rows in (8, 1, 5):
        for _ in range(_LONG):
            x = mx.random.normal((rows, 1, 8))
            assert mx.allclose(linear(x), plain(x), atol=1e-5)
        mx.eval(linear.weight)
        layouts.append(_by_row(linear.weight))
    assert layouts == [False, True, False, True]


def test_a_table_that_is_the_head_is_turned_and_looked_up_as_ever() -> None:
    plain = nn.Embedding(256, 8)
    block = nn.Sequential(plain)
    arrange_for_cpu(block)
    table = block.layers[0]
    assert isinstance(table, TurningEmbedding)
    for _ in range(_LONG):
        x = mx.random.normal((6, 8))
        assert mx.allclose(table.as_linear(x), plain.as_linear(x), atol=1e-5)
    mx.eval(table.weight)
    assert _by_row(table.weight)
    assert mx.array_equal(table(mx.array([[7, 200]])), plain(mx.array([[7, 200]])))


@pytest.mark.parametrize("rows", [1, 2, 33, 64])
def test_one_reply_or_a_prompt_turn_nothing(rows: int) -> None:
    block = nn.Sequential(nn.Linear(8, 256))
    arrange_for_cpu(block)
    for _ in range(_LONG):
        mx.eval(block.layers[0](mx.zeros((rows, 8))))
    assert not _by_row(block.layers[0].weight)


@pytest.mark.parametrize("limit", ["size", "memory", "blocks"])
def test_a_head_that_it_would_not_pay_for_stays(
    limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if limit == "size":
        monkeypatch.setattr("phyla.engine.layout._LARGEST", 100)
    elif limit == "memory":
        monkeypatch.setattr("phyla.engine.layout.available_memory", lambda: 100)
    plain = nn.Linear(8, 150 if limit == "blocks" else 256)
    block = nn.Sequential(plain)
    arrange_for_cpu(block)
    for _ in range(_LONG):
        x = mx.random.normal((8, 8))
        assert mx.allclose(block.layers[0](x), plain(x), atol=1e-5)
    assert not _by_row(block.layers[0].weight)


def test_of_requests_that_come_and_go_none_turns_a_matrix() -> None:
    block = nn.Sequential(nn.Linear(8, 256))
    arrange_for_cpu(block)
    for turn in range(_LONG):
        mx.eval(block.layers[0](mx.zeros((1 if turn % 10 == 9 else 8, 8))))
    assert not _by_row(block.layers[0].weight)


def test_a_matrix_larger_than_a_cache_is_read_for_two_rows_at_once(monkeypatch) -> None:
    monkeypatch.setattr("phyla.engine.layout._UNCACHED", 64)
    plain = nn.Linear(8, 136)
    block = nn.Sequential(plain)
    arrange_for_cpu(block)
    for rows in range(1, 10):
        x = mx.random.normal((rows, 8))
        assert mx.allclose(block.layers[0](x), plain(x), atol=1e-5)
