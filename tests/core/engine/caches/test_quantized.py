"""Quantized keys and values are attended to as they are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.engine.caches.oracle import (
    KEY_DIM,
    SCALE,
    VALUE_DIM,
    Tokens,
    assert_same,
    expected,
    mask,
    softmax,
    tokens,
)
from tests.core.engine.caches.rotations import ROPES, place
from tests.core.engine.caches.stores import chunkings, feed, store, windows

from phyla.engine.caches import SharedCache
from phyla.engine.tape import codec
from phyla.kv_quantization import BITS, GROUP_SIZES, Quantized
from phyla.nn import Rope

if TYPE_CHECKING:
    from phyla.engine.tape import Codec


def kept_as(how: Codec, part: mx.array) -> mx.array:
    """What is left of keys or values that go through a codec."""
    return how.decode(how.encode(part))


quantized = st.builds(
    Quantized, bits=st.sampled_from(BITS), group_size=st.sampled_from(GROUP_SIZES)
)


@given(
    keys=st.none() | quantized,
    values=st.none() | quantized,
    sizes=chunkings,
    window=windows,
    shared=st.booleans(),
    cut=st.integers(0, 3),
)
@settings(max_examples=30, deadline=None)
def test_quantized_keys_and_values_are_attended_to_as_they_are_kept_in_any_chunks(
    keys: Quantized | None,
    values: Quantized | None,
    sizes: list[int],
    window: int | None,
    shared: bool,
    cut: int,
) -> None:
    by_keys, by_values = codec(KEY_DIM, keys), codec(VALUE_DIM, values)
    whole = tokens(2 * sum(sizes))
    kept = Tokens(whole.queries, kept_as(by_keys, whole.keys), kept_as(by_values, whole.values))
    right = expected(kept, window)
    cache = store(window, by_keys, by_values)
    assert_same(feed(cache, whole, sizes), right)
    length = max(cache.floor, whole.size - cut)
    cache.compact()
    cache.cut(length)
    again = feed(cache, whole.cut(length, whole.size), sizes)
    assert_same(again, right[:, :, length:])
    if shared:
        last = SharedCache(cache).attend(whole.queries[:, :, -1:], scale=SCALE)
        assert_same(np.array(last), right[:, :, -1:])


@pytest.mark.parametrize("window", [None, 6])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_more_bits_keep_more_of_the_truth(window: int | None, bits: int) -> None:
    whole = tokens(40)
    right = expected(whole, window)
    how = (codec(KEY_DIM, Quantized(bits=bits)), codec(VALUE_DIM, Quantized(bits=bits)))
    off = np.abs(feed(store(window, *how), whole, [5]) - right).max()
    assert off < {2: 2.5, 4: 0.6, 8: 0.05}[bits]


@pytest.mark.parametrize("window", [None, 6])
@pytest.mark.parametrize("bits", [4, 8])
def test_quantized_keys_turn_too(window: int | None, bits: int) -> None:
    rope = Rope(ROPES[0], KEY_DIM)
    by_keys, by_values = (codec(dim, Quantized(bits=bits)) for dim in (KEY_DIM, VALUE_DIM))
    raw = tokens(30)
    at_first = place(raw, range(30), rope)
    cache = store(window, by_keys, by_values)
    feed(cache, at_first, [4])
    lost = cache.start
    cache.drop(4, 20, rope.turn)
    held = kept_as(by_keys, at_first.keys)
    turned = kept_as(by_keys, rope.turn(held[:, :, 20:], -16))
    new = place(tokens(1, 3), [14], rope)
    whole = Tokens(
        mx.concatenate([raw.queries[:, :, :14], new.queries], axis=2),
        mx.concatenate([held[:, :, :4], turned, kept_as(by_keys, new.keys)], axis=2),
        kept_as(
            by_values,
            mx.concatenate([raw.values[:, :, :4], raw.values[:, :, 20:], new.values], axis=2),
        ),
    )
    seen = mask(15, window)
    seen[:, : min(lost, 4)] = False
    seen |= np.eye(15, dtype=bool)
    found = feed(cache, new)
    # Values go through the codec a second time, which may move them by a step.
    step = {4: 0.5, 8: 0.03}[bits]
    np.testing.assert_allclose(found, softmax(whole, seen)[:, :, -1:], atol=step)


@pytest.mark.parametrize("window", [None, 6])
@pytest.mark.parametrize(("start", "stop"), [(0, 20), (4, 20), (19, 20), (7, 7), (0, 1)])
def test_quantized_stores_shift_at_the_edges_too(window: int | None, start: int, stop: int) -> None:
    rope = Rope(ROPES[0], KEY_DIM)
    by_keys, by_values = (codec(dim, Quantized(bits=8)) for dim in (KEY_DIM, VALUE_DIM))
    cache = store(window, by_keys, by_values)
    feed(cache, tokens(20), [3])
    cache.drop(start, stop, rope.turn)
    assert cache.length == 20 - (stop - start)
    assert np.isfinite(feed(cache, tokens(3, 1), [1])).all()
