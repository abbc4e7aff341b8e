"""Stores of a few heads, how they are fed, and what they have to go on with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
from hypothesis import strategies as st
from tests.core.engine.caches.oracle import (
    HEADS,
    KEY_DIM,
    KV_HEADS,
    SCALE,
    VALUE_DIM,
    Tokens,
    assert_same,
    expected,
    tokens,
)

from phyla.engine.caches import FullCache, SlidingCache
from phyla.engine.tape import PLAIN
from phyla.family import Full, Sliding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from phyla.engine.tape import Codec

chunkings = st.lists(st.integers(1, 12), min_size=1, max_size=8)
windows = st.none() | st.integers(1, 20)


def full(*, bidirectional: bool = False, kv_heads: int = KV_HEADS) -> Full:
    return Full(heads=kv_heads, key_dim=KEY_DIM, value_dim=VALUE_DIM, bidirectional=bidirectional)


def sliding(window: int, *, bidirectional: bool = False, kv_heads: int = KV_HEADS) -> Sliding:
    return Sliding(
        window=window,
        heads=kv_heads,
        key_dim=KEY_DIM,
        value_dim=VALUE_DIM,
        bidirectional=bidirectional,
    )


def store(window: int | None, keys: Codec = PLAIN, values: Codec = PLAIN) -> FullCache:
    if window is None:
        return FullCache(full(), keys, values)
    return SlidingCache(sliding(window), keys, values)


def feed(cache: FullCache, new: Tokens, sizes: Sequence[int] | None = None) -> NDArray[Any]:
    """Feed tokens in chunks of these sizes, over and over, each evaluated."""
    outs, at, turn = [], 0, 0
    while at < new.size:
        size = min(new.size - at, sizes[turn % len(sizes)] if sizes else new.size)
        out = cache.attend(*new.cut(at, at + size), scale=SCALE)
        mx.eval(out, *cache.arrays)
        outs.append(out)
        at, turn = at + size, turn + 1
    return np.array(mx.concatenate(outs, axis=2)) if outs else np.zeros((1, HEADS, 0, VALUE_DIM))


def assert_goes_on(cache: FullCache, past: Tokens, window: int | None, seed: int = 77) -> None:
    """What follows is as after a fresh run of `past`, whatever the cache was through."""
    assert cache.length == past.size
    new = tokens(5, seed)
    found = feed(cache, new, [2, 1])
    assert_same(found, expected(past.then(new), window)[:, :, past.size :])


def poison(count: int) -> Tokens:
    """Tokens that nobody who sees one of them can hide."""
    clean = tokens(count, 13)
    return Tokens(
        clean.queries, mx.full(clean.keys.shape, 1e4), mx.full(clean.values.shape, mx.nan)
    )
