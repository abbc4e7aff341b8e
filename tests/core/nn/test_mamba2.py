"""The Mamba-2 mixer: its states, its types, and the limits of its step sizes."""

from __future__ import annotations

import math
from dataclasses import replace

import mlx.core as mx
import numpy as np
import pytest

from phyla.engine.caches import RecurrentCache
from phyla.nn import Mamba2, Mamba2Shape
from phyla.nn.mamba2 import GatedGroupRMSNorm
from phyla.testing import random_tensor

DIM = 16
SHAPE = Mamba2Shape(heads=4, head_dim=8, groups=2, state=6, kernel=4, norm_eps=1e-5)


def mixer(shape: Mamba2Shape = SHAPE) -> Mamba2:
    block = Mamba2(DIM, shape)
    block.A_log = mx.array(random_tensor("A_log", (shape.heads,)))
    block.dt_bias = mx.array(random_tensor("dt_bias", (shape.heads,)))
    return block


def run(block: Mamba2, sizes: list[int], dtype: mx.Dtype = mx.float32) -> mx.array:
    cache = RecurrentCache(block.cache_kind, dtype)
    x = mx.array(random_tensor("x", (1, sum(sizes), DIM))).astype(dtype)
    starts = [sum(sizes[:index]) for index in range(1, len(sizes))]
    return mx.concatenate([block(piece, cache) for piece in mx.split(x, starts, axis=1)], axis=1)


@pytest.mark.parametrize("sizes", [[1] * 12, [7, 5], [2, 1, 9]])
def test_pieces_equal_one_pass(sizes: list[int]) -> None:
    block = mixer()
    assert mx.allclose(run(block, sizes), run(block, [12]), atol=1e-5)


def test_rows_do_not_mix() -> None:
    block = mixer()
    x = mx.array(random_tensor("x", (2, 9, DIM)))
    kind = block.cache_kind
    alone = [block(row[None], RecurrentCache(kind, mx.float32)) for row in x]

    class Both(RecurrentCache):
        """The states of two sequences."""

    both = Both(kind, mx.float32)
    both.advance(*(mx.concatenate([state] * 2) for state in both.states), tokens=0)
    assert mx.allclose(block(x, both), mx.concatenate(alone), atol=1e-5)


def test_only_the_state_of_the_recurrence_is_float32_in_16_bits() -> None:
    block = mixer()
    block.set_dtype(mx.bfloat16)
    cache = RecurrentCache(block.cache_kind, mx.bfloat16)
    out = block(mx.ones((1, 3, DIM), mx.bfloat16), cache)
    assert out.dtype == mx.bfloat16
    assert [state.dtype for state in cache.states] == [mx.bfloat16, mx.float32]
    assert [state.shape for state in cache.states] == [(1, 3, 56), (1, 4, 8, 6)]


def test_the_state_is_kept_in_the_type_that_is_asked_for() -> None:
    block = mixer(replace(SHAPE, state_dtype="bfloat16"))
    cache = RecurrentCache(block.cache_kind, mx.float32)
    block(mx.ones((1, 3, DIM)), cache)
    assert cache.states[1].dtype == mx.bfloat16


@pytest.mark.parametrize("limits", [(0.0, math.inf), (0.4, math.inf), (0.0, 0.6), (0.4, 0.6)])
def test_step_sizes_are_limited_alike_in_a_prompt_and_in_decoding(
    limits: tuple[float, float],
) -> None:
    block = mixer(replace(SHAPE, step_limits=limits))
    raw = mx.linspace(-12, 12, 40).reshape(1, 10, 4)
    sizes = np.array(block._step_sizes(raw))
    plain = np.logaddexp(np.array(raw + block.dt_bias, np.float64), 0)
    np.testing.assert_allclose(sizes, np.clip(plain, *limits), rtol=1e-5)
    assert mx.allclose(run(block, [1] * 12), run(block, [12]), atol=1e-5)


def test_the_gate_comes_before_the_norm_and_the_norm_is_of_groups() -> None:
    norm = GatedGroupRMSNorm(8, 2, 1e-5)
    norm.weight = mx.arange(1, 9).astype(mx.float32)
    x, gate = (mx.array(random_tensor(name, (3, 8))) for name in ("x", "gate"))
    values, gates = np.array(x, np.float64), np.array(gate, np.float64)
    gated = (values * gates / (1 + np.exp(-gates))).reshape(3, 2, 4)
    normed = gated / np.sqrt((gated**2).mean(axis=-1, keepdims=True) + 1e-5)
    expected = normed.reshape(3, 8) * np.arange(1, 9)
    np.testing.assert_allclose(np.array(norm(x, gate)), expected, rtol=1e-4, atol=1e-5)
