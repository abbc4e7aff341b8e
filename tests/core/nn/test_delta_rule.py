"""The gated delta rule in chunks equals its recurrence, token by token in float64."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import hypothesis
import mlx.core as mx
import numpy as np
import pytest
from hypothesis import strategies as st

from phyla.nn import delta_rule, gated_delta_rule

if TYPE_CHECKING:
    from numpy.typing import NDArray

KEY_HEADS, VALUE_HEADS, KEY_DIM, VALUE_DIM = 2, 6, 16, 8


class Inputs(NamedTuple):
    queries: mx.array
    keys: mx.array
    values: mx.array
    decay: mx.array
    beta: mx.array
    state: mx.array


def inputs(length: int, *, rows: int = 2) -> Inputs:
    draws = iter(mx.random.split(mx.random.key(length), 6))

    def normal(*shape: int) -> mx.array:
        return mx.random.normal(shape, key=next(draws))

    def unit(x: mx.array) -> mx.array:
        return x / mx.linalg.norm(x, axis=-1, keepdims=True)

    return Inputs(
        queries=unit(normal(rows, length, KEY_HEADS, KEY_DIM)) * KEY_DIM**-0.5,
        keys=unit(normal(rows, length, KEY_HEADS, KEY_DIM)),
        values=normal(rows, length, VALUE_HEADS, VALUE_DIM),
        decay=-2 * mx.random.uniform(shape=(rows, length, VALUE_HEADS), key=next(draws)),
        beta=mx.random.uniform(shape=(rows, length, VALUE_HEADS), key=next(draws)),
        state=normal(rows, VALUE_HEADS, KEY_DIM, VALUE_DIM),
    )


def recurrence(given: Inputs) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    queries, keys, values, decay, beta, state = (
        np.array(x.astype(mx.float32)).astype(np.float64) for x in given
    )
    group = VALUE_HEADS // KEY_HEADS
    queries, keys = np.repeat(queries, group, axis=2), np.repeat(keys, group, axis=2)
    outputs = []
    for t in range(queries.shape[1]):
        state = state * np.exp(decay[:, t])[..., None, None]
        error = values[:, t] - np.einsum("bhkv,bhk->bhv", state, keys[:, t])
        change = beta[:, t, :, None] * error
        state = state + keys[:, t, :, :, None] * change[:, :, None, :]
        outputs.append(np.einsum("bhkv,bhk->bhv", state, queries[:, t]))
    return np.stack(outputs, axis=1), state


def in_pieces(given: Inputs, size: int) -> tuple[mx.array, mx.array]:
    state, outputs = given.state, []
    for start in range(0, given.keys.shape[1], size):
        queries, keys, values, decay, beta = (x[:, start : start + size] for x in given[:5])
        out, state = gated_delta_rule(queries, keys, values, decay=decay, beta=beta, state=state)
        outputs.append(out)
    return mx.concatenate(outputs, axis=1), state


def check(given: Inputs, size: int, *, tolerance: float = 1e-5) -> None:
    out, state = in_pieces(given, size)
    expected, last = recurrence(given)
    assert out.dtype == state.dtype == mx.float32
    np.testing.assert_allclose(np.array(out), expected, rtol=0, atol=tolerance)
    np.testing.assert_allclose(np.array(state), last, rtol=0, atol=tolerance)


@pytest.mark.parametrize("length", [1, 2, 3, 31, 32, 33, 64, 65, 150])
def test_chunks_of_any_length_equal_the_recurrence(length: int) -> None:
    check(inputs(length), length)


@pytest.mark.parametrize("size", [1, 7, 13, 64])
def test_the_state_carries_over(size: int) -> None:
    check(inputs(150), size)


def test_the_form_for_a_gpu_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_rule, "on_cpu", lambda: False)
    check(inputs(150), 150)
    check(inputs(3), 1)


@pytest.mark.parametrize("size", [1, 100])
def test_one_key_again_and_again_loses_no_digits(size: int) -> None:
    given = inputs(100)
    same = mx.broadcast_to(given.keys[:, :1], given.keys.shape)
    stubborn = given._replace(
        keys=same, beta=mx.ones_like(given.beta), decay=mx.full(given.decay.shape, -1e-3)
    )
    check(stubborn, size, tolerance=1e-4)


def test_a_decay_that_forgets_at_once_overflows_nowhere() -> None:
    given = inputs(100)
    check(given._replace(decay=mx.full(given.decay.shape, -80.0)), 100)


DECAYS = st.sampled_from([0.0, -1e-4, -1e-2, -0.3, -3.0, -30.0, -103.0, -1e4, -1e30, -np.inf])


@hypothesis.given(st.lists(DECAYS, min_size=1, max_size=100), st.booleans())
@hypothesis.example([-1e4, *[-1e-3] * 70], False)
@hypothesis.example([-103.0, -1e-4] * 40, True)
@hypothesis.example([-np.inf, -1e-3, -3e38, -1e-3], True)
def test_decays_of_any_size_side_by_side_lose_no_digits(decays: list[float], gpu: bool) -> None:
    drawn = inputs(len(decays))
    decay = mx.broadcast_to(mx.array(decays)[None, :, None], drawn.decay.shape)
    with pytest.MonkeyPatch.context() as patch:
        if gpu:
            patch.setattr(delta_rule, "on_cpu", lambda: False)
        check(drawn._replace(decay=decay), len(decays))


def test_16_bit_inputs_are_computed_in_float32() -> None:
    given = inputs(40)
    rounded = Inputs(*(x.astype(mx.bfloat16) for x in given))
    check(rounded._replace(state=given.state), 40)
