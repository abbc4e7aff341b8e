"""What stores take up, what a token and a fork cost, and what compacting gives back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.engine.caches.oracle import KEY_DIM, KV_HEADS, SCALE, VALUE_DIM, Tokens, tokens
from tests.core.engine.caches.stores import (
    assert_goes_on,
    chunkings,
    feed,
    full,
    sliding,
    store,
    windows,
)

from phyla.engine import caches
from phyla.engine.caches import FullCache, SlidingCache

if TYPE_CHECKING:
    from numpy.typing import NDArray


@pytest.mark.parametrize("window", [1, 8, 30])
@pytest.mark.parametrize("chunk", [1, 3, 50])
def test_bug_5_a_window_stays_bounded_when_several_tokens_come_per_call(
    window: int, chunk: int
) -> None:
    cache = SlidingCache(sliding(window))
    needed = window - 1 + caches.MARGIN
    most = needed + max(caches.BLOCK, needed // 2, chunk)
    for at in range(0, 300, chunk):
        feed(cache, tokens(chunk, at))
        assert cache.arrays[0].shape[2] <= most
        assert cache.length - cache.start <= most


def test_what_is_reserved_is_taken_once_and_no_more() -> None:
    cache = FullCache(full())
    cache.reserve(60)
    feed(cache, tokens(3))
    taken = cache.nbytes
    assert taken == 64 * KV_HEADS * (KEY_DIM + VALUE_DIM) * 4
    feed(cache, tokens(57), [1])
    assert cache.nbytes == taken


def test_a_fork_takes_what_is_reserved_for_it_and_no_more() -> None:
    cache = FullCache(full())
    cache.reserve(600)
    feed(cache, tokens(50))
    fork = cache.fork(50)
    fork.reserve(56)
    feed(fork, tokens(3))
    assert fork.nbytes == 56 * KV_HEADS * (KEY_DIM + VALUE_DIM) * 4


def address(array: Any) -> int:
    view: NDArray[np.float32] = np.asarray(memoryview(array))
    return view.__array_interface__["data"][0]


def addresses(cache: FullCache) -> list[int]:
    mx.eval(*cache.arrays)
    return [address(array) for array in cache.arrays]


def growing(window: int | None, past: Tokens) -> FullCache:
    """A store that has room for ten tokens more."""
    cache = store(window)
    cache.reserve(past.size + 10)
    feed(cache, past)
    if isinstance(cache, SlidingCache):
        # Let it slide, so that there is room again.
        cache._make_room(past.keys, past.values)
    assert cache._keys.capacity - (cache.length - cache.start) >= 10
    return cache


@pytest.mark.parametrize("window", [None, 30])
def test_no_token_costs_a_copy_of_those_before(window: int | None) -> None:
    past = tokens(40)
    cache = growing(window, past)
    before = addresses(cache)
    for at in range(10):
        feed(cache, tokens(1, at))
        assert addresses(cache) == before


@pytest.mark.parametrize("window", [None, 30])
def test_a_fork_costs_nothing_until_one_of_both_appends(window: int | None) -> None:
    past = tokens(40)
    cache = growing(window, past)
    before = addresses(cache)
    fork = cache.fork(40)
    assert addresses(fork) == before
    assert addresses(cache) == before


@pytest.mark.parametrize("window", [None, 30])
def test_a_mark_that_is_dropped_leaves_no_copy_behind(window: int | None) -> None:
    past = tokens(40)
    cache = growing(window, past)
    before = addresses(cache)
    for at in range(8):
        mark = cache.mark()
        new = tokens(1, at)
        out = cache.attend(*new, scale=SCALE)
        if at % 3 == 0:
            cache = mark
        del mark
        mx.eval(*cache.arrays)
        del out
        assert addresses(cache) == before


@given(sizes=chunkings, window=windows, reserved=st.integers(0, 200), cut=st.integers(0, 3))
@settings(max_examples=40, deadline=None)
def test_compacting_changes_nothing_but_the_memory(
    sizes: list[int], window: int | None, reserved: int, cut: int
) -> None:
    whole = tokens(sum(sizes))
    cache = store(window)
    cache.reserve(reserved)
    feed(cache, whole, sizes)
    length = max(cache.floor, whole.size - cut)
    cache.cut(length)
    before = cache.nbytes
    cache.compact()
    assert cache.nbytes <= before
    held = length if window is None else min(length, window - 1 + caches.MARGIN)
    assert cache.arrays[0].shape[2] <= held + caches.BLOCK + held // 4
    assert_goes_on(cache, whole.cut(0, length), window)
