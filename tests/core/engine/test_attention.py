"""Attention over stored keys says what one masked softmax says, in every form it may take."""

from __future__ import annotations

import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phyla.engine import attention
from phyla.engine.attention import attend


def plainly(
    queries: mx.array, keys: mx.array, values: mx.array, scale: float, window: int | None
) -> mx.array:
    count, stored, heads = queries.shape[2], keys.shape[2], queries.shape[1]
    keys = mx.repeat(keys, heads // keys.shape[1], axis=1)
    values = mx.repeat(values, heads // values.shape[1], axis=1)
    query = mx.arange(stored - count, stored)[:, None]
    place = mx.arange(stored)
    seen = place <= query
    if window is not None:
        seen = seen & (place > query - window)
    scores = (queries @ keys.swapaxes(-1, -2)) * scale
    return mx.softmax(mx.where(seen, scores, -mx.inf), axis=-1) @ values


def agree(
    count: int, stored: int, window: int | None, *, rows: int = 1, heads: int = 4, kv: int = 2
) -> None:
    key = mx.random.key(count * 1000 + stored)
    parts = mx.random.split(key, 3)
    queries = mx.random.normal((rows, heads, count, 8), key=parts[0])
    keys = mx.random.normal((rows, kv, stored, 8), key=parts[1])
    values = mx.random.normal((rows, kv, stored, 6), key=parts[2])
    found = attend(queries, keys, values, scale=0.5, window=window)
    assert mx.allclose(found, plainly(queries, keys, values, 0.5, window), atol=1e-5)


@given(
    before=st.integers(0, 40),
    count=st.integers(1, 20),
    window=st.none() | st.integers(1, 30),
    rows=st.integers(1, 2),
)
@settings(max_examples=80, deadline=None)
def test_any_chunk_over_any_past_sees_what_it_should(
    before: int, count: int, window: int | None, rows: int
) -> None:
    agree(count, before + count, window, rows=rows)


@pytest.mark.parametrize("window", [None, 1, 63, 64, 65, 500])
@pytest.mark.parametrize(("count", "stored"), [(64, 64), (65, 65), (200, 200), (130, 700)])
def test_blocks_of_queries_join_without_a_seam(count: int, stored: int, window: int | None) -> None:
    agree(count, stored, window)


@pytest.mark.parametrize("stored", [511, 512, 513, 900])
@pytest.mark.parametrize("window", [None, 40, 600])
def test_one_query_over_many_keys(stored: int, window: int | None) -> None:
    agree(1, stored, window)


@pytest.mark.parametrize(("count", "window"), [(1, None), (9, None), (9, 4)])
def test_the_fused_form_agrees_with_the_one_in_parts(
    count: int, window: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "on_cpu", lambda: False)
    agree(count, 30, window)


def test_a_sink_takes_part_of_the_weight_and_adds_nothing() -> None:
    queries = mx.zeros((1, 1, 1, 4))
    keys = mx.zeros((1, 1, 1, 4))
    values = mx.ones((1, 1, 1, 4))
    out = attend(queries, keys, values, scale=1.0, sinks=mx.zeros((1,)))
    assert mx.allclose(out, mx.full((1, 1, 1, 4), 0.5))
