"""A causal convolution gives the same however its input is cut."""

from __future__ import annotations

import mlx.core as mx
import pytest

from phyla.nn import CausalConv1d


def block(*, bias: bool, kernel: int = 4) -> CausalConv1d:
    conv = CausalConv1d(6, kernel, bias=bias)
    if bias:
        conv.bias = mx.random.normal((6,), key=mx.random.key(1))
    return conv


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kernel", [2, 3, 4])
def test_an_output_is_the_weighted_sum_of_the_last_inputs(bias: bool, kernel: int) -> None:
    conv = block(bias=bias, kernel=kernel)
    x = mx.random.normal((2, 9, 6), key=mx.random.key(0))
    out, _ = conv(x, mx.zeros((2, *conv.state_shape)))
    for token in range(9):
        for back in range(kernel):
            if token >= back:
                out[:, token] = out[:, token] - x[:, token - back] * conv.weight[:, -1 - back, 0]
    assert mx.allclose(out, conv.bias if bias else mx.zeros((6,)), atol=1e-5)


@pytest.mark.parametrize("cuts", [[9], [1] * 9, [2, 1, 6], [4, 5]])
def test_the_state_carries_what_the_next_chunk_needs(cuts: list[int]) -> None:
    conv = block(bias=True)
    x = mx.random.normal((2, 9, 6), key=mx.random.key(0))
    whole, last = conv(x, mx.zeros((2, *conv.state_shape)))
    state, start, outputs = mx.zeros((2, *conv.state_shape)), 0, []
    for count in cuts:
        out, state = conv(x[:, start : start + count], state)
        outputs.append(out)
        start += count
    assert mx.allclose(mx.concatenate(outputs, axis=1), whole, atol=1e-6)
    assert mx.array_equal(state, last)


def test_outputs_and_state_are_in_the_dtype_of_the_input() -> None:
    conv = block(bias=True)
    for length in (1, 5):
        out, state = conv(mx.ones((1, length, 6), mx.bfloat16), mx.zeros((1, 3, 6)))
        assert out.dtype == state.dtype == mx.bfloat16
