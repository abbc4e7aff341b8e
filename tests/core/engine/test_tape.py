"""Tapes: what is written is what is read, and nobody sees what another writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phyla.engine.tape import PLAIN, Affine, Tape, codec
from phyla.kv_quantization import BITS, GROUP_SIZES, Quantized

if TYPE_CHECKING:
    from numpy.typing import NDArray

DTYPES = (mx.float32, mx.float16, mx.bfloat16)


def vectors(count: int, *, dim: int = 6, heads: int = 2, seed: int = 0) -> mx.array:
    return mx.random.normal((1, heads, count, dim), key=mx.random.key(seed))


def address(array: Any) -> int:
    """Where the values lie; the array is evaluated."""
    mx.eval(array)
    view: NDArray[np.float32] = np.asarray(memoryview(array))
    return view.__array_interface__["data"][0]


def filled(count: int, capacity: int, *, seed: int = 0) -> Tape:
    tape = Tape(PLAIN)
    first = vectors(count, seed=seed)
    tape.resize(0, 0, capacity, first)
    tape.write(0, first)
    mx.eval(tape.arrays)
    return tape


@given(sizes=st.lists(st.integers(1, 9), max_size=6), spare=st.integers(0, 5))
@settings(max_examples=30, deadline=None)
def test_what_is_written_is_read_however_often_the_buffers_are_replaced(
    sizes: list[int], spare: int
) -> None:
    whole = vectors(sum(sizes))
    tape, held = Tape(PLAIN), 0
    for size in sizes:
        new = whole[:, :, held : held + size]
        if held + size > tape.capacity:
            tape.resize(0, held, held + size + spare, new)
            assert tape.capacity == held + size + spare
        tape.write(held, new)
        held += size
        assert mx.array_equal(tape.read(0, held), whole[:, :, :held])
        assert mx.array_equal(tape.read(held // 2, held), whole[:, :, held // 2 : held])


def test_a_new_tape_holds_nothing_and_takes_nothing() -> None:
    tape = Tape(PLAIN)
    assert (tape.capacity, tape.nbytes, tape.arrays) == (0, 0, [])


def test_resizing_keeps_what_is_asked_for_at_the_front() -> None:
    tape = filled(8, 8)
    kept = tape.read(3, 7)
    tape.resize(3, 7, 10, vectors(1))
    assert tape.capacity == 10
    assert mx.array_equal(tape.read(0, 4), kept)


def test_an_only_owner_writes_in_place() -> None:
    tape = filled(4, 64)
    before = address(tape.arrays[0])
    for at in range(4, 64):
        tape.write(at, vectors(1, seed=at))
        assert mx.array_equal(tape.read(at, at + 1), vectors(1, seed=at))
        assert address(tape.arrays[0]) == before


@pytest.mark.parametrize("make", ["alias", "window", "whole window", "copy"])
@pytest.mark.parametrize("first", [0, 1])
def test_two_tapes_never_see_what_the_other_writes(make: str, first: int) -> None:
    tape = filled(8, 8)
    before = mx.array(np.array(tape.read(0, 8)))
    match make:
        case "alias":
            other = tape.alias()
        case "window":
            other = tape.window(0, 6)
        case "whole window":
            other = tape.window(0, 8)
        case _:
            other = tape.copy(0, 6)
    stop = other.capacity
    pair = (tape, other)
    pair[first].write(2, vectors(2, seed=1))
    mx.eval(pair[first].arrays)
    assert mx.array_equal(pair[1 - first].read(0, stop), before[:, :, :stop])
    pair[1 - first].write(3, vectors(2, seed=2))
    expected = [mx.array(before), mx.array(before)]
    expected[first][:, :, 2:4] = vectors(2, seed=1)
    expected[1 - first][:, :, 3:5] = vectors(2, seed=2)
    for found, right in zip(pair, expected, strict=True):
        assert mx.array_equal(found.read(0, stop), right[:, :, :stop])


def test_a_tape_whose_alias_is_gone_writes_in_place_again() -> None:
    tape = filled(4, 64)
    before = address(tape.arrays[0])
    other = tape.alias()
    assert address(other.arrays[0]) == before, "an alias copies nothing"
    del other
    tape.write(4, vectors(1))
    assert address(tape.arrays[0]) == before


def test_a_window_shares_the_memory_and_a_copy_lets_it_go() -> None:
    tape = Tape(PLAIN, [mx.zeros((1, 4, 4096, 16))])
    mx.eval(tape.arrays)
    whole, held = tape.nbytes, mx.get_active_memory()
    window = tape.window(0, 100)
    mx.eval(window.arrays)
    assert mx.get_active_memory() - held < whole // 4
    copy = window.copy(0, 50)
    mx.eval(copy.arrays)
    assert copy.capacity == 50
    del tape, window
    assert held - mx.get_active_memory() > whole - 2 * copy.nbytes - 16384


# Quantized.


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("group_size", GROUP_SIZES)
@pytest.mark.parametrize("dim", [8, 32, 80, 96, 256])
def test_no_value_is_further_off_than_a_step_of_its_group(
    bits: int, group_size: int, dim: int
) -> None:
    # A few heads are flat, far from zero, or of one sign.
    values = (
        vectors(12, dim=dim, heads=4, seed=bits) * mx.array([1.0, 30.0, 0.0, 1.0])[:, None, None]
    )
    values = values + mx.array([0.0, 0.0, 3.0, 50.0])[:, None, None]
    how = codec(dim, Quantized(bits=bits, group_size=group_size))
    found = how.decode(how.encode(values))
    assert found.shape == values.shape
    padded = np.pad(np.array(values), [(0, 0)] * 3 + [(0, -dim % group_size)])
    groups = padded.reshape(1, 4, 12, -1, group_size)
    step = (groups.max(-1) - groups.min(-1)) / (2**bits - 1)
    allowed = np.repeat(step, group_size, axis=-1)[..., :dim] * 1.01 + 1e-4
    assert (np.abs(np.array(found) - np.array(values)) <= allowed).all()


@given(
    bits=st.sampled_from(BITS),
    group_size=st.sampled_from(GROUP_SIZES),
    dim=st.integers(1, 140),
    sizes=st.lists(st.integers(1, 7), min_size=1, max_size=4),
    dtype=st.sampled_from(DTYPES),
)
@settings(max_examples=40, deadline=None)
def test_quantizing_piece_by_piece_is_quantizing_at_once(
    bits: int, group_size: int, dim: int, sizes: list[int], dtype: mx.Dtype
) -> None:
    whole = vectors(sum(sizes), dim=dim).astype(dtype)
    how = Affine(dim, bits, group_size)
    pieces, at = [], 0
    for size in sizes:
        pieces.append(how.encode(whole[:, :, at : at + size]))
        at += size
    for parts, at_once in zip(zip(*pieces, strict=True), how.encode(whole), strict=True):
        assert mx.array_equal(mx.concatenate(list(parts), axis=2), at_once)
    assert how.decode(how.encode(whole)).dtype == dtype


@given(
    bits=st.none() | st.sampled_from(BITS),
    group_size=st.sampled_from(GROUP_SIZES),
    dim=st.integers(1, 300),
    heads=st.integers(1, 3),
    capacity=st.integers(1, 20),
    dtype=st.sampled_from(DTYPES),
)
@settings(max_examples=60, deadline=None)
def test_a_tape_takes_just_the_bytes_that_its_codec_says(
    bits: int | None, group_size: int, dim: int, heads: int, capacity: int, dtype: mx.Dtype
) -> None:
    how = codec(dim, None if bits is None else Quantized(bits=bits, group_size=group_size))
    tape = Tape(how)
    tape.resize(0, 0, capacity, vectors(1, dim=dim, heads=heads).astype(dtype))
    assert tape.nbytes == capacity * heads * how.token_bytes(dim, dtype.size)
