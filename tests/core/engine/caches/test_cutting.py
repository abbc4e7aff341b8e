"""A store that was cut is as if the rest had never been, or refuses."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.engine.caches.oracle import assert_same, expected, tokens
from tests.core.engine.caches.stores import (
    assert_goes_on,
    chunkings,
    feed,
    poison,
    sliding,
    store,
    windows,
)

from phyla.engine import caches
from phyla.engine.caches import SlidingCache


@given(sizes=chunkings, window=windows, compact=st.booleans())
@settings(max_examples=12, deadline=None)
def test_a_cut_is_as_if_the_rest_had_never_been_at_every_length(
    sizes: list[int], window: int | None, compact: bool
) -> None:
    whole = tokens(sum(sizes))
    cache = store(window)
    feed(cache, whole, sizes)
    if compact:
        cache.compact()
    assert 0 <= cache.floor <= cache.length
    for length in range(cache.floor, cache.length + 1):
        fork = cache.fork(length)
        assert_goes_on(fork, whole.cut(0, length), window)
    cache.cut(cache.floor)
    assert_goes_on(cache, whole.cut(0, cache.floor), window)


@pytest.mark.parametrize("window", [1, 2, 7, 20])
def test_bug_8_a_cut_is_refused_where_a_key_is_missing_that_a_fresh_run_would_see(
    window: int,
) -> None:
    for count in range(1, 60, 4):
        cache = SlidingCache(sliding(window))
        feed(cache, tokens(count), [3])
        for length in range(count + 1):
            # The next token sees the `window - 1` before it, as far as there are any.
            all_held = cache.start <= max(0, length - (window - 1))
            if length >= cache.floor:
                assert all_held
                continue
            with pytest.raises(AssertionError):
                cache.fork(length)
            with pytest.raises(AssertionError):
                cache.cut(length)
            assert cache.length == count


@pytest.mark.parametrize("window", [1, 7, 20])
def test_a_few_tokens_can_always_be_taken_back(window: int) -> None:
    cache = SlidingCache(sliding(window))
    for at in range(60):
        feed(cache, tokens(1, at))
        if at % 7 == 0:
            cache.compact()
        assert cache.floor <= max(0, cache.length - caches.MARGIN)


def test_nothing_can_be_cut_beyond_the_end() -> None:
    cache = store(None)
    feed(cache, tokens(4))
    for act in (cache.cut, cache.fork):
        with pytest.raises(AssertionError):
            act(5)


@given(
    sizes=chunkings,
    foreign=st.integers(1, 40),
    own=st.integers(1, 30),
    window=windows,
    how=st.sampled_from(["cut", "fork", "snapshot", "restored"]),
)
@settings(max_examples=40, deadline=None)
def test_bug_4_no_key_of_another_conversation_can_be_reached(
    sizes: list[int], foreign: int, own: int, window: int | None, how: str
) -> None:
    shared, new = tokens(9, 1), tokens(own, 2)
    cache = store(window)
    feed(cache, shared, sizes)
    moment = cache.snapshot() if isinstance(cache, SlidingCache) else None
    feed(cache, poison(foreign), sizes)
    if moment is not None and (how in ("snapshot", "restored") or cache.floor > 9):
        assert isinstance(cache, SlidingCache)
        cache = cache.at(moment, 9)
    elif how == "fork":
        cache = cache.fork(9)
    else:
        cache.cut(9)
    if how == "restored":
        cache.compact()
    found = feed(cache, new, sizes)
    assert_same(found, expected(shared.then(new), window)[:, :, 9:])


def test_bug_4_a_conversation_that_outgrew_its_window_lets_no_other_begin_with_it() -> None:
    cache = SlidingCache(sliding(4))
    feed(cache, tokens(4, 1))
    feed(cache, poison(40), [3])
    assert cache.floor > 4
    with pytest.raises(AssertionError):
        cache.cut(4)


def test_bug_3_a_prompt_that_shares_more_than_the_window_equals_a_cold_run() -> None:
    first = tokens(12, 1)
    second = first.cut(0, 10).then(tokens(6, 2))
    cache = SlidingCache(sliding(8))
    feed(cache, first)
    cache.cut(10)
    found = feed(cache, second.cut(10, 16), [2])
    assert_same(found, expected(second, 8)[:, :, 10:])
