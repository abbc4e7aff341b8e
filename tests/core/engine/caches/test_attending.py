"""However a sequence is cut into chunks, a layer attends over its own tokens."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.engine.caches.oracle import (
    HEADS,
    SCALE,
    assert_same,
    expected,
    mask,
    softmax,
    tokens,
)
from tests.core.engine.caches.stores import chunkings, feed, full, sliding, store, windows

from phyla.engine import caches
from phyla.engine.caches import FullCache, SharedCache, SlidingCache
from phyla.family import Full


@given(sizes=chunkings, window=windows, reserved=st.integers(0, 80))
@settings(max_examples=30, deadline=None)
def test_a_store_equals_attention_under_a_mask_in_any_chunks(
    sizes: list[int], window: int | None, reserved: int
) -> None:
    cache, whole = store(window), tokens(3 * sum(sizes))
    cache.reserve(reserved)
    assert_same(feed(cache, whole, sizes), expected(whole, window))
    assert cache.length == whole.size


@pytest.mark.parametrize("window", range(1, 7))
def test_every_size_of_chunk_gives_what_the_mask_says(window: int) -> None:
    whole = tokens(4 * window + 13)
    right = expected(whole, window)
    for chunk in range(1, window + 4):
        assert_same(feed(store(window), whole, [chunk]), right)


@pytest.mark.parametrize("window", [None, 5, 100, 500])
def test_the_real_sizes_of_buffers_change_nothing(
    window: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caches, "BLOCK", 256)
    monkeypatch.setattr(caches, "MARGIN", 64)
    whole = tokens(700)
    assert_same(feed(store(window), whole, [255, 1, 1, 90, 1]), expected(whole, window))


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("window", [None, 6])
def test_groups_of_queries_share_a_head_of_keys(kv_heads: int, window: int | None) -> None:
    whole = tokens(30, kv_heads=kv_heads)
    kind = full(kv_heads=kv_heads) if window is None else sliding(window, kv_heads=kv_heads)
    cache = FullCache(kind) if isinstance(kind, Full) else SlidingCache(kind)
    assert_same(feed(cache, whole, [7, 1]), expected(whole, window))


@given(sizes=chunkings, window=windows)
@settings(max_examples=30, deadline=None)
def test_sinks_take_part_in_every_chunk(sizes: list[int], window: int | None) -> None:
    sinks = mx.random.normal((HEADS,), key=mx.random.key(5))
    cache, whole = store(window), tokens(sum(sizes))
    outs, at = [], 0
    for size in sizes:
        outs.append(cache.attend(*whole.cut(at, at + size), scale=SCALE, sinks=sinks))
        at += size
    right = softmax(whole, mask(whole.size, window), np.array(sinks, np.float64))
    assert_same(np.array(mx.concatenate(outs, axis=2)), right)


@given(
    before=st.integers(0, 25),
    lead=st.integers(0, 4),
    blocks=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 3)), min_size=1, max_size=3),
    window=windows,
    bidirectional=st.booleans(),
    shared=st.booleans(),
)
@settings(max_examples=80, deadline=None)
def test_only_kinds_that_say_so_see_ahead_and_only_within_a_block(
    before: int,
    lead: int,
    blocks: list[tuple[int, int]],
    window: int | None,
    bidirectional: bool,
    shared: bool,
) -> None:
    cache = (
        FullCache(full(bidirectional=bidirectional))
        if window is None
        else SlidingCache(sliding(window, bidirectional=bidirectional))
    )
    here: list[tuple[int, int]] = []
    at = lead
    for width, gap in blocks:
        here.append((at, at + width))
        at += width + gap
    whole = tokens(before + at + 3)
    outs = [feed(cache, whole.cut(0, before), [4])]
    cache.blocks = here
    chunk = whole.cut(before, before + at)
    out = cache.attend(*chunk, scale=SCALE)
    if shared:
        out = SharedCache(cache).attend(chunk.queries, scale=SCALE)
    outs.append(np.array(out))
    cache.blocks = ()
    outs.append(feed(cache, whole.cut(before + at, whole.size), [1]))
    spans = [(before + start, before + stop) for start, stop in here] if bidirectional else []
    right = softmax(whole, mask(whole.size, window, spans))
    assert_same(np.concatenate(outs, axis=2), right)


def test_a_shared_store_says_what_its_source_says() -> None:
    whole = tokens(20)
    source = store(5)
    shared = SharedCache(source)
    for at in range(0, 20, 4):
        chunk = whole.cut(at, at + 4)
        out = source.attend(*chunk, scale=SCALE)
        assert mx.array_equal(shared.attend(chunk.queries, scale=SCALE), out)
        assert shared.length == source.length
    assert (shared.nbytes, list(shared.arrays), shared.floor) == (0, [], 0)
