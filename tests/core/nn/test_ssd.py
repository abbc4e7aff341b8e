"""Mamba-2's recurrence: the chunked form and the single step are the recurrence, written out."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from phyla.nn import ssd as ssd_module
from phyla.nn.ssd import ssd
from phyla.testing import random_tensor

ROWS, HEADS, WIDTH, GROUPS, STATE = 2, 6, 5, 3, 7


def tensors(length: int) -> dict[str, mx.array]:
    shapes = {
        "x": (ROWS, length, HEADS, WIDTH),
        "b": (ROWS, length, GROUPS, STATE),
        "c": (ROWS, length, GROUPS, STATE),
        "state": (ROWS, HEADS, WIDTH, STATE),
    }
    made = {name: mx.array(random_tensor(name, shape)) for name, shape in shapes.items()}
    made["dt"] = mx.abs(mx.array(random_tensor("dt", (ROWS, length, HEADS)))) * 0.3
    made["a"] = -mx.array(random_tensor("a", (HEADS,)))
    return made


def written_out(
    x: mx.array, dt: mx.array, a: mx.array, b: mx.array, c: mx.array, state: mx.array
) -> tuple[np.ndarray, np.ndarray]:
    values, steps, rates, enter, read, h = (
        np.array(each, np.float64) for each in (x, dt, a, b, c, state)
    )
    out = np.zeros_like(values)
    for row, token, head in np.ndindex(*values.shape[:3]):
        group = head // (HEADS // GROUPS)
        step = steps[row, token, head]
        entering = np.outer(step * values[row, token, head], enter[row, token, group])
        h[row, head] = np.exp(step * rates[head]) * h[row, head] + entering
        out[row, token, head] = h[row, head] @ read[row, token, group]
    return out, h


@pytest.mark.parametrize("length", [1, 2, 8, 21])
@pytest.mark.parametrize("chunk", [8, 64])
def test_any_chunk_gives_the_recurrence(
    length: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssd_module, "_CHUNK_ON_CPU", chunk)
    monkeypatch.setattr(ssd_module, "_CHUNK_ON_GPU", chunk)
    given = tensors(length)
    out, state = ssd(**given)
    expected, after = written_out(**given)
    np.testing.assert_allclose(np.array(out), expected, rtol=0, atol=2e-5)
    np.testing.assert_allclose(np.array(state), after, rtol=0, atol=2e-5)


def test_both_ways_to_update_a_state_agree() -> None:
    given = tensors(1)
    grouped = (ROWS, GROUPS, HEADS // GROUPS)
    state = given["state"].reshape(*grouped, WIDTH, STATE)
    inputs, b = given["x"].reshape(*grouped, WIDTH), given["b"][:, 0]
    decay = given["dt"].reshape(*grouped, 1, 1)
    found = ssd_module._update(state, decay, inputs, b)
    plain = state * decay + inputs[..., None] * b[:, :, None, None]
    np.testing.assert_allclose(np.array(found), np.array(plain), rtol=0, atol=1e-6)


def test_a_strong_decay_neither_overflows_nor_leaks() -> None:
    given = tensors(21)
    given["a"] = mx.full((HEADS,), -4000.0)
    out, state = ssd(**given)
    expected, after = written_out(**given)
    np.testing.assert_allclose(np.array(out), expected, rtol=0, atol=2e-5)
    np.testing.assert_allclose(np.array(state), after, rtol=0, atol=2e-5)


def test_slow_decay_after_a_strong_one_keeps_its_digits() -> None:
    given = tensors(21)
    given["dt"][:, 3] = 1e6
    given["x"][:, 3] *= 1e-6
    given["a"] = given["a"] * 0.01
    out, state = ssd(**given)
    expected, after = written_out(**given)
    np.testing.assert_allclose(np.array(out), expected, rtol=0, atol=2e-5)
    np.testing.assert_allclose(np.array(state), after, rtol=0, atol=2e-5)


@pytest.mark.parametrize("chunk", [64, 256])
def test_decays_of_every_size_in_one_chunk_keep_their_digits(
    chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssd_module, "_CHUNK_ON_CPU", chunk)
    monkeypatch.setattr(ssd_module, "_CHUNK_ON_GPU", chunk)
    given = tensors(chunk)
    # Forgetting everything three times in four, then hardly anything: rates times steps from 1e-6
    # to 1e4, with inputs of like size behind the steps.
    draw = np.random.default_rng(0)
    sizes = 10.0 ** draw.uniform(-6, 4, (ROWS, chunk, HEADS))
    sizes[:, -chunk // 4 :] = 10.0 ** draw.uniform(-6, -2, (ROWS, chunk // 4, HEADS))
    given["dt"] = mx.array(sizes.astype(np.float32))
    given["a"] = mx.full((HEADS,), -1.0)
    given["x"] = given["x"] / given["dt"][..., None]
    out, state = ssd(**given)
    expected, after = written_out(**given)
    np.testing.assert_allclose(np.array(out), expected, rtol=0, atol=3e-6 * np.ptp(expected))
    np.testing.assert_allclose(np.array(state), after, rtol=0, atol=3e-6 * np.ptp(after))


def test_a_later_token_with_an_enormous_step_does_not_reach_earlier_ones() -> None:
    given = tensors(21)
    spoilt = dict(given)
    spoilt["dt"] = mx.concatenate([given["dt"][:, :20], mx.full((ROWS, 1, HEADS), 1e30)], axis=1)
    found, expected = ssd(**spoilt)[0], ssd(**given)[0]
    np.testing.assert_allclose(np.array(found[:, :20]), np.array(expected[:, :20]), atol=1e-5)


def test_16_bit_inputs_are_computed_in_float32() -> None:
    given = tensors(9)
    half = {name: each.astype(mx.bfloat16) for name, each in given.items()}
    out, state = ssd(**half)
    assert {out.dtype, state.dtype} == {mx.float32}
    exact = ssd(**{name: each.astype(mx.float32) for name, each in half.items()})
    np.testing.assert_array_equal(np.array(out), np.array(exact[0]))
