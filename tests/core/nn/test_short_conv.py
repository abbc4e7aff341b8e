"""The gated short convolution of LFM2, against its formula."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from phyla.engine.caches import RecurrentCache
from phyla.nn import ShortConv
from phyla.testing import random_tensor

DIM = 6


@pytest.mark.parametrize("sizes", [[11], [1] * 11, [1, 2, 8], [8, 3]])
@pytest.mark.parametrize("bias", [False, True])
def test_it_is_the_formula_in_pieces_too(sizes: list[int], bias: bool) -> None:
    block = ShortConv(DIM, 4, bias=bias)
    if bias:
        block.in_proj.bias = mx.array(random_tensor("bias", (3 * DIM,)))
        block.conv.bias = mx.array(random_tensor("conv.bias", (DIM,)))
    x = mx.array(random_tensor("x", (2, 11, DIM)))
    before, after, value = np.split(np.array(block.in_proj(x), np.float64), 3, axis=-1)
    taps = np.array(block.conv.weight[..., 0], np.float64)
    inputs = np.concatenate([np.zeros((2, 3, DIM)), before * value], axis=1)
    filtered = sum(inputs[:, tap : tap + 11] * taps[:, tap] for tap in range(4))
    if bias:
        filtered = filtered + np.array(block.conv.bias)
    expected = np.array(block.out_proj(mx.array(after * filtered).astype(mx.float32)))

    cache = RecurrentCache(block.cache_kind, mx.float32)
    cache.advance(mx.zeros((2, 3, DIM)), tokens=0)
    starts = [sum(sizes[:index]) for index in range(1, len(sizes))]
    found = mx.concatenate([block(piece, cache) for piece in mx.split(x, starts, axis=1)], axis=1)
    np.testing.assert_allclose(np.array(found), expected, rtol=0, atol=1e-5)
    np.testing.assert_allclose(np.array(cache.states[0]), inputs[:, -3:], rtol=0, atol=1e-5)
    assert cache.length == 11
