"""Attention over stored keys says what one masked softmax says, in every form it may take."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phyla.engine import attention
from phyla.engine.attention import attend, attend_one

if TYPE_CHECKING:
    from collections.abc import Sequence


def plainly(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    scale: float,
    window: int | None,
    blocks: Sequence[tuple[int, int]] = (),
    sinks: mx.array | None = None,
) -> mx.array:
    count, stored, heads = queries.shape[2], keys.shape[2], queries.shape[1]
    keys = mx.repeat(keys, heads // keys.shape[1], axis=1)
    values = mx.repeat(values, heads // values.shape[1], axis=1)
    query = mx.arange(stored - count, stored)[:, None]
    place = mx.arange(stored)
    seen = place <= query
    for start, stop in blocks:
        one, other = query - (stored - count), place - (stored - count)
        seen = seen | ((one >= start) & (one < stop) & (other >= start) & (other < stop))
    if window is not None:
        seen = seen & (place > query - window)
    scores = mx.where(seen, (queries @ keys.swapaxes(-1, -2)) * scale, -mx.inf)
    if sinks is not None:
        column = mx.broadcast_to(sinks[:, None, None], (*scores.shape[:3], 1))
        scores = mx.concatenate([scores, column], axis=-1)
    return mx.softmax(scores, axis=-1)[..., :stored] @ values


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


@pytest.mark.parametrize("lengths", [(511, 512), (700, 700), (5, 600, 1), (3, 3)])
def test_one_query_of_several_rows_sees_what_each_alone_would(lengths: tuple[int, ...]) -> None:
    queries = mx.random.normal((len(lengths), 4, 1, 8))
    rows = [
        (mx.random.normal((1, 2, count, 8)), mx.random.normal((1, 2, count, 6)))
        for count in lengths
    ]
    found = attend_one(queries, rows, scale=0.5)
    for row, (keys, values) in enumerate(rows):
        alone = plainly(queries[row : row + 1], keys, values, 0.5, None)
        assert mx.allclose(found[row : row + 1], alone, atol=1e-5)


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


@given(
    before=st.integers(0, 20),
    cuts=st.lists(st.integers(0, 20), min_size=2, max_size=6, unique=True),
    window=st.none() | st.integers(1, 30),
    sunk=st.booleans(),
    fused=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_media_blocks_see_ahead_and_no_further_back_than_the_window(
    before: int, cuts: list[int], window: int | None, sunk: bool, fused: bool
) -> None:
    cuts.sort()
    blocks = list(zip(cuts[::2], cuts[1::2], strict=False))
    parts = mx.random.split(mx.random.key(before), 4)
    queries = mx.random.normal((2, 4, 20, 8), key=parts[0])
    keys = mx.random.normal((2, 2, before + 20, 8), key=parts[1])
    values = mx.random.normal((2, 2, before + 20, 6), key=parts[2])
    sinks = mx.random.normal((4,), key=parts[3]) if sunk else None
    with pytest.MonkeyPatch.context() as patch:
        if fused:
            patch.setattr(attention, "on_cpu", lambda: False)
        found = attend(queries, keys, values, scale=0.5, window=window, blocks=blocks, sinks=sinks)
    right = plainly(queries, keys, values, 0.5, window, blocks, sinks)
    assert mx.allclose(found, right, atol=1e-5)


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
def test_sinks_may_be_kept_in_a_wider_type_than_the_rest(dtype: mx.Dtype) -> None:
    queries, keys = (mx.ones((1, heads, 3, 8), dtype) for heads in (4, 2))
    out = attend(queries, keys, keys, scale=0.5, sinks=mx.zeros((4,), mx.float32))
    assert out.dtype == dtype
    right = plainly(queries, keys, keys, 0.5, None, (), mx.zeros((4,), dtype))
    assert mx.allclose(out, right, atol=0.02)


@pytest.mark.parametrize("count", [1, 7])
@pytest.mark.parametrize("stored", [9, 600])
def test_keys_that_are_not_seen_may_hold_anything(count: int, stored: int) -> None:
    queries, values = mx.ones((1, 2, count, 8)), mx.ones((1, 2, stored, 8))
    values[:, :, : stored - count - 2] = mx.nan
    out = attend(queries, values, values, scale=0.5, window=3)
    assert mx.allclose(out, mx.ones_like(out))
