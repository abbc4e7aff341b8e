"""A batch: each row gets, bit for bit, what its sequence gets alone, whoever its neighbours are.

The layers between the stores are elementwise here, so that nothing is left to rounding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phyla.engine import caches
from phyla.engine.layers import Allocation, Layers
from phyla.engine.rows import stack
from phyla.family import Full, NoCache, Recurrent, SharedWith, Sliding
from phyla.kv_quantization import KVQuantization, Quantized

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

WIDTH, HEADS, KV_HEADS, DIM = 16, 4, 2, 4

KINDS = (
    Full(heads=KV_HEADS, key_dim=DIM, value_dim=DIM),
    Sliding(window=4, heads=KV_HEADS, key_dim=DIM, value_dim=DIM),
    Recurrent(shapes=((WIDTH,), (2, WIDTH)), dtypes=("float32", None)),
    SharedWith(0),
    NoCache(),
    SharedWith(1),
)

PLAIN = Allocation(KINDS, mx.float32)
QUANTIZED = Allocation(
    KINDS,
    mx.float32,
    KVQuantization(keys=Quantized(bits=8, group_size=32), values=Quantized(bits=4)),
)
ALLOCATIONS = {"plain": PLAIN, "quantized": QUANTIZED}


@pytest.fixture(scope="module", autouse=True)
def small_buffers() -> Iterator[None]:
    """Buffers so small that a few tokens make them grow and slide."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(caches, "BLOCK", 8)
        patch.setattr(caches, "MARGIN", 3)
        yield


def run(stores: Sequence[Any], x: mx.array, sinks: mx.array | None = None) -> mx.array:
    """Feed `[B, T, WIDTH]` to the stores of a stack, or to the rows of a batch."""
    rows, count, _ = x.shape
    for index, kind in enumerate(KINDS):
        cache = stores[index]
        turned = mx.roll(x, index + 1, -1)
        queries = turned.reshape(rows, count, HEADS, DIM).swapaxes(1, 2)
        keys = x[..., : WIDTH // 2].reshape(rows, count, KV_HEADS, DIM).swapaxes(1, 2)
        values = x[..., WIDTH // 2 :].reshape(rows, count, KV_HEADS, DIM).swapaxes(1, 2)
        match kind:
            case Full() | Sliding():
                out = cache.attend(queries, keys, values, scale=0.7, sinks=sinks)
                x = x + out.swapaxes(1, 2).reshape(rows, count, WIDTH)
            case SharedWith():
                out = cache.attend(queries, scale=0.7, sinks=sinks)
                x = x - out.swapaxes(1, 2).reshape(rows, count, WIDTH)
            case Recurrent():
                total, last = cache.states
                inputs = mx.concatenate([last, x], axis=1)
                outs: list[mx.array] = []
                for at in range(count):
                    total = total * 0.5 + inputs[:, at + 1] - inputs[:, at]
                    outs.append(total)
                cache.advance(total, inputs[:, -2:], tokens=count)
                x = mx.stack(outs, axis=1)
            case NoCache():
                x = mx.minimum(turned, 2.0)
    return x


def random(count: int, seed: int) -> mx.array:
    return mx.random.normal((1, count, WIDTH), key=mx.random.key(seed))


def same(one: mx.array, other: mx.array) -> bool:
    """Whether each bit is the same; NaN equals NaN."""
    return np.array(one).tobytes() == np.array(other).tobytes()


class Row:
    """A sequence in a batch, and the same one alone."""

    def __init__(self, allocation: Allocation, seed: int, prompt: int) -> None:
        self.seed, self.steps = seed, 0
        self.layers, self.alone = allocation.layers(), allocation.layers()
        if prompt:
            new = random(prompt, seed)
            run(self.layers.stores, new)
            run(self.alone.stores, new)

    def next(self, count: int = 1) -> mx.array:
        self.steps += 1
        return random(count, self.seed * 1000 + self.steps)


def step(rows: Sequence[Row], count: int = 1, sinks: mx.array | None = None) -> None:
    """One step for all; each row is compared with the same step alone."""
    new = [row.next(count) for row in rows]
    found = run(stack([row.layers for row in rows]), mx.concatenate(new), sinks)
    assert found.shape == (len(rows), count, WIDTH)
    mx.eval(found, *(array for row in rows for array in row.layers.arrays))
    for number, row in enumerate(rows):
        right = run(row.alone.stores, new[number], sinks)
        assert same(found[number : number + 1], right)
        assert row.layers.length == row.alone.length
        for one, other in zip(row.layers.stores, row.alone.stores, strict=True):
            assert one.length == other.length


@pytest.mark.parametrize("how", ALLOCATIONS)
@given(
    prompts=st.lists(st.integers(0, 30), min_size=1, max_size=4),
    moves=st.lists(st.sampled_from(["step", "join", "leave", "long", "swap"]), max_size=10),
    sunk=st.booleans(),
)
@settings(max_examples=8, deadline=None)
def test_rows_at_any_positions_join_and_leave_and_none_of_the_others_notices(
    how: str, prompts: list[int], moves: list[str], sunk: bool
) -> None:
    allocation = ALLOCATIONS[how]
    sinks = mx.random.normal((HEADS,), key=mx.random.key(9)) if sunk else None
    rows = [Row(allocation, seed, prompt) for seed, prompt in enumerate(prompts)]
    for number, move in enumerate(moves):
        match move:
            case "join":
                rows.append(Row(allocation, 100 + number, 3 * number))
            case "leave" if len(rows) > 1:
                gone = rows.pop(number % len(rows))
                gone.layers.compact()
                step([gone], 2, sinks)
            case "swap":
                rows.reverse()
            case _:
                pass
        step(rows, 3 if move == "long" else 1, sinks)


def test_bug_12_and_14_a_neighbour_that_holds_anything_at_all_is_not_seen() -> None:
    row = Row(PLAIN, 1, 5)
    bad = PLAIN.layers()
    run(bad.stores, mx.full((1, 40, WIDTH), mx.nan))
    for at in range(12):
        new = row.next()
        worse = mx.full((1, 1, WIDTH), mx.nan)
        pair = [bad, row.layers] if at % 2 else [row.layers, bad]
        inputs = [worse, new] if at % 2 else [new, worse]
        found = run(stack(pair), mx.concatenate(inputs))
        assert same(found[at % 2 : at % 2 + 1], run(row.alone.stores, new))
        assert np.isnan(np.array(found[1 - at % 2])).any()


def test_bug_13_a_sequence_that_comes_later_joins_a_batch_of_states() -> None:
    rows = [Row(PLAIN, 1, 10)]
    step(rows)
    rows.append(Row(PLAIN, 2, 26))
    for _ in range(6):
        step(rows)


def test_a_batch_that_is_forked_cut_and_restored_row_by_row_stays_right() -> None:
    rows = [Row(PLAIN, seed, prompt) for seed, prompt in enumerate([3, 20, 11])]
    step(rows)
    moments = [(row.layers.snapshot(), row.alone.snapshot()) for row in rows]
    marks = [(row.layers.mark(), row.alone.mark()) for row in rows]
    step(rows)
    rows[1].layers.reset(marks[1][0])
    rows[1].alone.reset(marks[1][1])
    del marks
    step(rows)
    rows[0].layers.restore(moments[0][0])
    rows[0].alone.restore(moments[0][1])
    rows[2].layers = rows[2].layers.fork_at(moments[2][0])
    rows[2].alone = rows[2].alone.fork_at(moments[2][1])
    for _ in range(5):
        step(rows)


def test_a_sequence_and_its_fork_go_on_in_one_batch() -> None:
    row = Row(PLAIN, 1, 9)
    other = Row(PLAIN, 2, 0)
    other.layers = row.layers.fork(row.layers.length)
    other.alone = row.alone.fork(row.alone.length)
    for _ in range(6):
        step([row, other])


def test_a_row_that_has_left_a_batch_keeps_no_more_than_its_own_states() -> None:
    kind = Recurrent(shapes=((4096,),), dtypes=("float32",))
    allocation = Allocation((kind,), mx.float32)
    batch = [allocation.layers() for _ in range(16)]
    before = mx.get_active_memory()
    rows: Any = stack(batch)[0]
    rows.advance(rows.states[0] + 1, tokens=1)
    mx.eval([array for layers in batch for array in layers.arrays])
    del rows
    left = batch[3]
    batch.clear()
    left.compact()
    assert left.length == 1
    assert mx.get_active_memory() - before <= 2 * 4096 * 4


def test_an_empty_batch_has_no_layers() -> None:
    nobody: list[Layers] = []
    assert stack(nobody) == []
