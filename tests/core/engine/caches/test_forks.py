"""Forks, marks and snapshots: whoever goes on, the others are untouched."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.engine.caches.oracle import tokens
from tests.core.engine.caches.stores import assert_goes_on, chunkings, feed, poison, sliding, store

from phyla.engine.caches import SlidingCache


@pytest.mark.parametrize("window", [None, 1, 5, 30])
@pytest.mark.parametrize("original_first", [True, False])
@pytest.mark.parametrize("how", ["fork", "mark", "shorter fork"])
def test_whoever_appends_first_the_other_is_untouched(
    window: int | None, original_first: bool, how: str
) -> None:
    past = tokens(40)
    cache = store(window)
    feed(cache, past)
    length = max(cache.floor, 38) if how == "shorter fork" else 40
    other = cache.mark() if how == "mark" else cache.fork(length)
    pair = [(cache, 40, 1), (other, length, 2)]
    for each, held, seed in pair if original_first else reversed(pair):
        assert_goes_on(each, past.cut(0, held), window, seed)
    # And once more, now that both have buffers of their own.
    assert_goes_on(cache, past.then(tokens(5, 1)), window, 3)
    assert_goes_on(other, past.cut(0, length).then(tokens(5, 2)), window, 4)


def test_forks_of_forks_go_their_own_ways() -> None:
    past = tokens(21)
    cache = store(None)
    feed(cache, past)
    line = [cache]
    for _ in range(4):
        line.append(line[-1].fork(line[-1].length - 3))
    for number, fork in enumerate(reversed(line)):
        length = 21 - 3 * (4 - number)
        assert_goes_on(fork, past.cut(0, length), None, seed=number)


@given(
    before=st.integers(0, 40),
    after=st.integers(1, 40),
    window=st.integers(1, 20),
    sizes=chunkings,
)
@settings(max_examples=25, deadline=None)
def test_a_snapshot_of_a_window_outlives_all_that_follows(
    before: int, after: int, window: int, sizes: list[int]
) -> None:
    past = tokens(before)
    cache = SlidingCache(sliding(window))
    feed(cache, past, sizes)
    moment = cache.snapshot()
    mx.eval(moment.arrays)
    kept = [np.array(array) for array in moment.arrays]
    feed(cache, poison(after), sizes)
    for number in range(2):
        back = cache.at(moment, before)
        assert back.floor <= back.length
        assert_goes_on(back, past, window, seed=number)
    for array, held in zip(moment.arrays, kept, strict=True):
        assert np.array_equal(np.array(array), held)
        assert array.shape[2] == min(before, window - 1)
