"""Tokens dropped from the middle: what is left stands where it would have been fed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.engine.caches.oracle import (
    KEY_DIM,
    Tokens,
    assert_same,
    expected,
    mask,
    softmax,
    tokens,
)
from tests.core.engine.caches.rotations import ROPES, place
from tests.core.engine.caches.stores import feed, store, windows

from phyla.nn import Rope

if TYPE_CHECKING:
    from phyla.family.rope import RopeConfig


@given(
    count=st.integers(1, 60),
    ends=st.tuples(st.integers(0, 60), st.integers(0, 60)),
    window=windows,
    chunk=st.integers(1, 12),
    config=st.sampled_from(ROPES),
    forked=st.booleans(),
)
@settings(max_examples=50, deadline=None)
def test_what_is_left_after_a_shift_stands_where_it_would_have_been_fed(
    count: int,
    ends: tuple[int, int],
    window: int | None,
    chunk: int,
    config: RopeConfig,
    forked: bool,
) -> None:
    rope = Rope(config, KEY_DIM)
    start, stop = (min(end, count) for end in sorted(ends))
    raw = tokens(count)
    cache = store(window)
    feed(cache, place(raw, range(count), rope), [chunk])
    lost = cache.start  # what slid out of a window cannot come back
    witness = cache.fork(count) if forked else None
    cache.drop(start, stop, rope.turn)

    left = [at for at in range(count) if not start <= at < stop]
    kept = Tokens(*(part[:, :, mx.array(left, dtype=mx.int32)] for part in raw))
    assert cache.length == len(left)
    assert cache.floor <= cache.length
    new = tokens(7, 3)
    total = len(left) + new.size
    whole = place(kept.then(new), range(total), rope)
    seen = mask(total, window)
    seen[:, [number for number, at in enumerate(left) if at < lost]] = False
    right = softmax(whole, seen | np.eye(total, dtype=bool))
    fork = cache.fork(cache.length)
    for each in (fork, cache):
        found = feed(each, whole.cut(len(left), total), [3, 1])
        assert_same(found, right[:, :, len(left) :])
    if witness is not None:
        after = place(raw.then(new), range(count + 7), rope)
        found = feed(witness, after.cut(count, count + 7), [3, 1])
        assert_same(found, expected(after, window)[:, :, count:])


@given(count=st.integers(20, 60), window=windows)
@settings(max_examples=8, deadline=None)
def test_shifting_over_and_over_takes_no_more_memory(count: int, window: int | None) -> None:
    rope = Rope(ROPES[0], KEY_DIM)
    cache = store(window)
    cache.reserve(count)
    feed(cache, tokens(count), [5])
    taken = cache.nbytes
    for turn in range(6):
        cache.drop(4, 4 + (count - 4) // 2, rope.turn)
        feed(cache, tokens(count - cache.length, turn), [1])
        assert cache.length == count
        assert cache.nbytes <= taken
