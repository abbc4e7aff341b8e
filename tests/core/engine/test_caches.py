"""The stores: however a sequence is cut into chunks, a layer attends over the same tokens."""

from __future__ import annotations

import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phyla.engine.attention import attend
from phyla.engine.caches import (
    FullCache,
    RecurrentCache,
    SharedCache,
    SlidingCache,
    allocate,
    token_bytes,
)
from phyla.family import Full, NoCache, Recurrent, SharedWith, Sliding

FULL = Full(heads=2, key_dim=4, value_dim=4)


def qkv(count: int, seed: int = 0) -> tuple[mx.array, mx.array, mx.array]:
    parts = mx.random.split(mx.random.key(seed), 3)
    return (
        mx.random.normal((1, 4, count, 4), key=parts[0]),
        mx.random.normal((1, 2, count, 4), key=parts[1]),
        mx.random.normal((1, 2, count, 4), key=parts[2]),
    )


def in_chunks(cache: FullCache | SlidingCache, sizes: list[int]) -> mx.array:
    queries, keys, values = qkv(sum(sizes))
    outs: list[mx.array] = []
    at = 0
    for size in sizes:
        cut = slice(at, at + size)
        outs.append(cache.attend(queries[:, :, cut], keys[:, :, cut], values[:, :, cut], scale=0.5))
        at += size
    return mx.concatenate(outs, axis=2)


@given(sizes=st.lists(st.integers(1, 12), min_size=1, max_size=8), reserve=st.integers(0, 80))
@settings(max_examples=50, deadline=None)
def test_a_full_cache_sees_everything_in_any_chunks(sizes: list[int], reserve: int) -> None:
    cache = FullCache(FULL)
    cache.reserve(reserve)
    found = in_chunks(cache, sizes)
    assert cache.length == sum(sizes)
    assert mx.allclose(found, attend(*qkv(sum(sizes)), scale=0.5), atol=1e-5)


@given(
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=8),
    window=st.integers(1, 20),
)
@settings(max_examples=80, deadline=None)
def test_a_sliding_cache_equals_a_full_one_with_a_mask(sizes: list[int], window: int) -> None:
    cache = SlidingCache(Sliding(window=window, heads=2, key_dim=4, value_dim=4))
    found = in_chunks(cache, sizes)
    assert cache.length == sum(sizes)
    assert mx.allclose(found, attend(*qkv(sum(sizes)), scale=0.5, window=window), atol=1e-5)


def test_bug_5_a_sliding_cache_stays_bounded_when_several_tokens_come_per_call() -> None:
    cache = SlidingCache(Sliding(window=8, heads=2, key_dim=4, value_dim=4))
    in_chunks(cache, [6, *[3] * 20])
    held = sum(array.shape[2] for array in cache.arrays) / 2
    assert held <= 8


@pytest.mark.parametrize("tokens", [1, 255, 256, 257, 1000])
def test_growing_keeps_what_is_stored(tokens: int) -> None:
    cache = FullCache(FULL)
    found = in_chunks(cache, [tokens, 1, 1])
    assert mx.allclose(found, attend(*qkv(tokens + 2), scale=0.5), atol=1e-5)


def test_a_reserved_buffer_does_not_grow() -> None:
    cache = FullCache(FULL)
    cache.reserve(600)
    in_chunks(cache, [10])
    before = cache.nbytes
    cache.attend(*qkv(500), scale=0.5)
    assert cache.nbytes == before


def test_a_shared_cache_reads_what_the_other_layer_stored() -> None:
    full, shared = allocate([FULL, SharedWith(0)], mx.float32)
    assert isinstance(full, FullCache)
    assert isinstance(shared, SharedCache)
    queries, keys, values = qkv(7)
    expected = full.attend(queries, keys, values, scale=0.5)
    assert mx.array_equal(shared.attend(queries, scale=0.5), expected)
    assert shared.length == 7
    assert shared.nbytes == 0


def test_a_recurrent_cache_starts_at_zero_and_counts_tokens() -> None:
    kind = Recurrent(shapes=((3, 2), (4,)), dtypes=(None, "float32"))
    cache = RecurrentCache(kind, mx.bfloat16)
    conv, state = cache.states
    assert (conv.shape, conv.dtype) == ((1, 3, 2), mx.bfloat16)
    assert (state.shape, state.dtype) == ((1, 4), mx.float32)
    cache.advance(conv + 1, state + 2, tokens=5)
    assert cache.length == 5
    assert cache.states[1].tolist() == [[2.0] * 4]


def test_each_layer_gets_a_store_of_its_kind() -> None:
    stores = allocate([FULL, NoCache(), FULL], mx.float32)
    assert [type(store).__name__ for store in stores] == ["FullCache", "EmptyCache", "FullCache"]
    assert token_bytes([FULL, NoCache(), FULL], itemsize=2) == 2 * 2 * 8 * 2
