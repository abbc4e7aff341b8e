"""The stores of one sequence together: whatever is done to them, they hold what was fed.

A stack of all kinds of layers runs on random tokens; the oracle runs it in NumPy, at once, under
masks, and knows no stores.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phyla.engine import caches, layers
from phyla.engine.caches import FullCache, RecurrentCache, SharedCache, SlidingCache
from phyla.engine.layers import Allocation, Layers, Snapshot
from phyla.family import Full, NoCache, Recurrent, SharedWith, Sliding
from phyla.kv_quantization import KVQuantization, Quantized

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from phyla.family import CacheKind

WIDTH, HEADS, KV_HEADS, DIM = 16, 4, 2, 4
SCALE = 0.7

FULL = Full(heads=KV_HEADS, key_dim=DIM, value_dim=DIM)
STATE = Recurrent(shapes=((2, WIDTH), (WIDTH,)), dtypes=(None, "float32"))


def sliding(window: int, *, bidirectional: bool = False) -> Sliding:
    return Sliding(
        window=window, heads=KV_HEADS, key_dim=DIM, value_dim=DIM, bidirectional=bidirectional
    )


ATTENTION = (FULL, FULL)
WINDOWS = (sliding(5), FULL, SharedWith(0), SharedWith(1))
HYBRID = (STATE, FULL, STATE)
MIXED = (
    FULL,
    sliding(5),
    STATE,
    SharedWith(0),
    SharedWith(1),
    NoCache(),
    sliding(1, bidirectional=True),
    FULL,
    SharedWith(6),
    STATE,
)
STACKS = {"attention": ATTENTION, "windows": WINDOWS, "hybrid": HYBRID, "mixed": MIXED}

TABLE = mx.random.normal((50, WIDTH), key=mx.random.key(0))


@pytest.fixture(scope="module", autouse=True)
def small_buffers() -> Iterator[None]:
    """Buffers so small that a few tokens make them grow and slide."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (caches, layers):
            patch.setattr(module, "BLOCK", 8)
            patch.setattr(module, "MARGIN", 3)
        yield


@pytest.fixture
def real_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (caches, layers):
        monkeypatch.setattr(module, "BLOCK", 256)
        monkeypatch.setattr(module, "MARGIN", 64)


def run(kinds: Sequence[CacheKind], sequence: Layers, ids: Sequence[int]) -> mx.array:
    """Feed a chunk to a stack of layers; `[T, WIDTH]`."""
    x = TABLE[mx.array(list(ids))][None]
    count = x.shape[1]
    for index, kind in enumerate(kinds):
        cache = sequence.stores[index]
        turned = mx.roll(x, index + 1, -1)
        queries = turned.reshape(1, count, HEADS, DIM).swapaxes(1, 2)
        keys = x[..., : WIDTH // 2].reshape(1, count, KV_HEADS, DIM).swapaxes(1, 2)
        values = x[..., WIDTH // 2 :].reshape(1, count, KV_HEADS, DIM).swapaxes(1, 2)
        match kind:
            case Full() | Sliding():
                assert isinstance(cache, FullCache)
                seen = cache.attend(queries, keys, values, scale=SCALE)
                x = mx.tanh(x + seen.swapaxes(1, 2).reshape(1, count, WIDTH))
            case SharedWith():
                assert isinstance(cache, SharedCache)
                seen = cache.attend(queries, scale=SCALE)
                x = mx.tanh(x + seen.swapaxes(1, 2).reshape(1, count, WIDTH))
            case Recurrent():
                assert isinstance(cache, RecurrentCache)
                conv, total = cache.states
                inputs = mx.concatenate([conv, x], axis=1)
                mixed = inputs[:, 2:] + 0.5 * inputs[:, 1:-1] - 0.3 * inputs[:, :-2]
                outs: list[mx.array] = []
                for at in range(count):
                    total = 0.8 * total + mixed[:, at]
                    outs.append(total)
                cache.advance(inputs[:, -2:], total, tokens=count)
                x = mx.tanh(turned + mx.stack(outs, axis=1))
            case NoCache():
                x = turned * 0.9
    mx.eval(x, sequence.arrays)
    return x[0]


def oracle(kinds: Sequence[CacheKind], ids: Sequence[int]) -> NDArray[np.float64]:
    """The same for a whole sequence at once."""
    x = np.array(TABLE, np.float64)[list(ids)]
    count = len(ids)
    query, place = np.mgrid[:count, :count]
    stored: dict[int, tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]] = {}
    for index, kind in enumerate(kinds):
        turned = np.roll(x, index + 1, axis=-1)
        match kind:
            case Full() | Sliding() | SharedWith():
                source = kind.layer if isinstance(kind, SharedWith) else index
                if source == index:
                    window = kind.window if isinstance(kind, Sliding) else count
                    mask = (place <= query) & (query - place < window)
                    stored[index] = (x[:, : WIDTH // 2], x[:, WIDTH // 2 :], mask)
                keys, values, mask = stored[source]
                outs: list[NDArray[np.float64]] = []
                for head in range(HEADS):
                    group = slice(head // 2 * DIM, (head // 2 + 1) * DIM)
                    asked = turned[:, head * DIM : (head + 1) * DIM]
                    scores = np.where(mask, SCALE * asked @ keys[:, group].T, -np.inf)
                    weights = np.exp(scores - scores.max(-1, keepdims=True))
                    outs.append(weights / weights.sum(-1, keepdims=True) @ values[:, group])
                x = np.tanh(x + np.concatenate(outs, axis=-1))
            case Recurrent():
                inputs = np.concatenate([np.zeros((2, WIDTH)), x])
                mixed = inputs[2:] + 0.5 * inputs[1:-1] - 0.3 * inputs[:-2]
                total, states = np.zeros(WIDTH), []
                for at in range(count):
                    total = 0.8 * total + mixed[at]
                    states.append(total)
                x = np.tanh(turned + np.stack(states))
            case NoCache():
                x = turned * 0.9
    return x


def ids_of(count: int, seed: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, 50, count).tolist()


def assert_same(found: mx.array, right: NDArray[np.float64]) -> None:
    np.testing.assert_allclose(np.array(found), right, atol=1e-4)


@dataclass
class Sequences:
    """Sequences of one stack, the tokens of each, and the snapshots that belong to it."""

    kinds: Sequence[CacheKind]
    held: list[tuple[Layers, list[int], list[Snapshot]]] = field(default_factory=list)

    def feed(self, number: int, count: int, seed: int) -> None:
        sequence, ids, _ = self.held[number]
        new = ids_of(count, seed)
        assert sequence.length == len(ids)
        found = run(self.kinds, sequence, new)
        ids += new
        assert_same(found, oracle(self.kinds, ids)[-count:])
        assert sequence.length == len(ids)


def choices(draw: st.DataObject, sequences: Sequences) -> None:
    """Do something to one of the sequences."""
    number = draw.draw(st.integers(0, len(sequences.held) - 1))
    sequence, ids, moments = sequences.held[number]
    lengths = st.integers(sequence.floor, len(ids))
    seed = draw.draw(st.integers(0, 1000))
    match draw.draw(st.sampled_from(DOINGS)):
        case "feed":
            sequences.feed(number, draw.draw(st.integers(1, 12)), seed)
        case "snapshot":
            moment = sequence.snapshot()
            assert moment.length == len(ids)
            moments.append(moment)
        case "fork":
            length = draw.draw(lengths)
            short = [moment for moment in moments if moment.length <= length]
            sequences.held.append((sequence.fork(length), ids[:length], short))
        case "fork_at" if moments:
            at = draw.draw(st.integers(0, len(moments) - 1))
            length = moments[at].length
            short = [moment for moment in moments if moment.length <= length]
            sequences.held.append((sequence.fork_at(moments[at]), ids[:length], short))
        case "cut":
            length = draw.draw(lengths)
            sequence.cut(length)
            del ids[length:]
            moments[:] = [moment for moment in moments if moment.length <= length]
        case "restore" if moments:
            at = draw.draw(st.integers(0, len(moments) - 1))
            length = moments[at].length
            sequence.restore(moments[at])
            del ids[length:]
            moments[:] = [moment for moment in moments if moment.length <= length]
        case "compact":
            before = sequence.nbytes
            sequence.compact()
            assert sequence.nbytes <= before
        case "mark":
            mark, length = sequence.mark(), len(ids)
            sequences.feed(number, draw.draw(st.integers(1, 3)), seed)
            sequence.reset(mark)
            del ids[length:]
        case "reserve":
            sequence.reserve(len(ids) + draw.draw(st.integers(0, 60)))
        case _:
            pass


DOINGS = (
    *("feed", "feed", "feed", "snapshot", "fork", "fork_at", "cut", "restore"),
    *("compact", "mark", "reserve"),
)


@pytest.mark.parametrize("stack", STACKS)
@given(draw=st.data())
@settings(max_examples=20, deadline=None)
def test_whatever_is_done_to_sequences_each_goes_on_as_a_fresh_run(
    stack: str, draw: st.DataObject
) -> None:
    kinds = STACKS[stack]
    allocation = Allocation(kinds, mx.float32)
    sequences = Sequences(kinds, [(allocation.layers(), [], [])])
    sequences.feed(0, draw.draw(st.integers(1, 20)), seed=0)
    before: dict[int, tuple[Snapshot, list[NDArray[np.float32]]]] = {}
    for _ in range(draw.draw(st.integers(1, 14))):
        choices(draw, sequences)
        for _, _, moments in sequences.held:
            for moment in moments:
                before.setdefault(
                    id(moment), (moment, [np.array(array) for array in moment.arrays])
                )
                assert moment.nbytes <= allocation.snapshot_nbytes
    for moment, arrays in before.values():
        for array, kept in zip(moment.arrays, arrays, strict=True):
            assert np.array_equal(np.array(array), kept), "a snapshot never changes"
    for number in range(len(sequences.held)):
        sequences.feed(number, 2, seed=number)


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.usefixtures("real_buffers")
def test_a_long_sequence_goes_back_to_every_moment_of_it(stack: str) -> None:
    kinds = STACKS[stack]
    ids = ids_of(420, 1)
    right = oracle(kinds, ids)
    sequence = Allocation(kinds, mx.float32).layers()
    moments: list[Snapshot] = []
    at = 0
    for size in (100, 1, 155, 1, 1, 80, 82):
        assert_same(run(kinds, sequence, ids[at : at + size]), right[at : at + size])
        at += size
        moments.append(sequence.snapshot())
    for moment in moments[:-1]:
        start = moment.length
        fork = sequence.fork_at(moment)
        assert_same(run(kinds, fork, ids[start : start + 7]), right[start : start + 7])
    for moment in reversed(moments[:-1]):
        start = moment.length
        sequence.restore(moment)
        assert_same(run(kinds, sequence, ids[start : start + 7]), right[start : start + 7])


@pytest.mark.parametrize("stack", ["windows", "hybrid", "mixed"])
def test_a_length_below_the_floor_is_refused_and_nothing_is_changed_by_asking(stack: str) -> None:
    kinds = STACKS[stack]
    sequence = Allocation(kinds, mx.float32).layers()
    ids = ids_of(40, 2)
    run(kinds, sequence, ids)
    run(kinds, sequence, ids[:1])
    ids += ids[:1]
    assert 0 < sequence.floor <= sequence.length
    with pytest.raises(AssertionError):
        sequence.fork(sequence.floor - 1)
    assert_same(run(kinds, sequence, [3]), oracle(kinds, [*ids, 3])[-1:])


def test_layers_that_keep_everything_can_be_cut_anywhere() -> None:
    sequence = Allocation(ATTENTION, mx.float32).layers()
    run(ATTENTION, sequence, ids_of(50, 1))
    assert sequence.floor == 0
    sequence.cut(0)
    assert sequence.length == 0
    assert_same(run(ATTENTION, sequence, [1, 2]), oracle(ATTENTION, [1, 2]))


def test_which_stacks_need_snapshots() -> None:
    cuttable = {name: Allocation(kinds, mx.float32).cuttable for name, kinds in STACKS.items()}
    assert cuttable == {"attention": True, "windows": False, "hybrid": False, "mixed": False}


def test_each_layer_gets_a_store_of_its_kind() -> None:
    stores = Allocation(MIXED, mx.float32).layers().stores
    assert [type(store).__name__ for store in stores] == [
        *("FullCache", "SlidingCache", "RecurrentCache", "SharedCache", "SharedCache"),
        *("EmptyCache", "SlidingCache", "FullCache", "SharedCache", "RecurrentCache"),
    ]
    sliding_store = stores[1]
    assert isinstance(sliding_store, SlidingCache)
    run(MIXED, Layers(stores), [1, 2, 3])
    assert [store.length for store in stores] == [3, 3, 3, 3, 3, 0, 3, 3, 3, 3]


def test_blocks_are_told_to_every_store_and_forgotten_at_the_next_chunk() -> None:
    kinds = (sliding(2, bidirectional=True), SharedWith(0), sliding(2))
    sequence = Allocation(kinds, mx.float32).layers()
    sequence.begin([(1, 4)])
    ids = [1, 2, 3, 4, 5]
    ahead = run(kinds, sequence, ids)
    plain = oracle(kinds, ids)
    changed = [bool(np.abs(np.array(ahead[at]) - plain[at]).max() > 1e-3) for at in range(5)]
    # The last one of a block sees nobody ahead, but the values of the one before it have changed.
    assert changed[:3] == [False, True, True]
    sequence.begin(())
    for store in sequence.stores:
        if isinstance(store, FullCache):
            assert not store.blocks


# Memory.


@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize(
    "quantized",
    [None, KVQuantization(keys=Quantized(bits=8, group_size=32), values=Quantized(bits=3))],
    ids=["plain", "quantized"],
)
@given(draw=st.data())
@settings(max_examples=15, deadline=None)
def test_no_more_is_taken_than_was_reckoned_at_any_moment(
    real: bool, quantized: KVQuantization | None, draw: st.DataObject
) -> None:
    most = draw.draw(st.integers(1, 900 if real else 120))
    chunk = draw.draw(st.integers(1, 400 if real else 40))
    window = draw.draw(st.integers(1, 500 if real else 60))
    kinds = (FULL, sliding(window), STATE, SharedWith(0), SharedWith(1), NoCache(), sliding(1))
    with pytest.MonkeyPatch.context() as patch:
        if real:
            for module in (caches, layers):
                patch.setattr(module, "BLOCK", 256)
                patch.setattr(module, "MARGIN", 64)
        allocation = Allocation(kinds, mx.float32, quantized)
        bound = allocation.nbytes(most, chunk=chunk)
        sequence = allocation.layers()
        sequence.reserve(most)
        moments: list[Snapshot] = []
        marks: list[str] = ["feed", "feed", "feed", "snapshot", "fork", "cut", "restore", "drop"]
        for what in draw.draw(st.lists(st.sampled_from(marks), min_size=3, max_size=12)):
            match what:
                case "feed":
                    count = min(draw.draw(st.integers(1, chunk)), most - sequence.length)
                    if count > 0:
                        quickly(kinds, sequence, count)
                case "snapshot":
                    moments.append(sequence.snapshot())
                    assert moments[-1].nbytes <= allocation.snapshot_nbytes
                case "fork":
                    sequence = sequence.fork(sequence.length)
                    sequence.reserve(most)
                case "cut":
                    sequence.cut(draw.draw(st.integers(sequence.floor, sequence.length)))
                case "restore" if moments and moments[-1].length <= sequence.length:
                    sequence.restore(moments[-1])
                case "drop" if sequence.length > 4:
                    # The states stay where they are, so nothing can follow.
                    sequence.drop(1, sequence.length // 2, lambda layer, keys, by: keys)
                    break
                case _:
                    pass
            mx.eval(sequence.arrays)
            assert sequence.nbytes <= bound
        assert sequence.nbytes <= bound


def quickly(kinds: Sequence[CacheKind], sequence: Layers, count: int) -> None:
    """Feed zeros, without what lies between the layers."""
    queries = mx.zeros((1, HEADS, count, DIM))
    keys = mx.zeros((1, KV_HEADS, count, DIM))
    for kind, cache in zip(kinds, sequence.stores, strict=True):
        if isinstance(kind, (Full, Sliding)):
            assert isinstance(cache, FullCache)
            cache.attend(queries, keys, keys, scale=SCALE)
        elif isinstance(cache, RecurrentCache):
            cache.advance(*(state + 1 for state in cache.states), tokens=count)
    mx.eval(sequence.arrays)


@pytest.mark.usefixtures("real_buffers")
def test_the_memory_that_is_really_taken_is_what_the_layers_say() -> None:
    kinds = (
        Full(heads=4, key_dim=32, value_dim=32),
        Sliding(window=300, heads=4, key_dim=32, value_dim=32),
        SharedWith(1),
        Recurrent(shapes=((64, 64),), dtypes=("float32",)),
    )
    allocation = Allocation(kinds, mx.float32)
    gc.collect()
    before = mx.get_active_memory()
    sequence = allocation.layers()
    sequence.reserve(2000)
    queries, keys = mx.ones((1, 4, 100, 32)), mx.ones((1, 4, 100, 32))
    mx.eval(queries, keys)
    own = queries.nbytes + keys.nbytes
    full, windowed, _, state = sequence.stores
    assert isinstance(full, FullCache)
    assert isinstance(windowed, FullCache)
    assert isinstance(state, RecurrentCache)
    for _ in range(20):
        full.attend(queries, keys, keys, scale=SCALE)
        windowed.attend(queries, keys, keys, scale=SCALE)
        state.advance(state.states[0] + 1, tokens=100)
        mx.eval(sequence.arrays)
        taken = mx.get_active_memory() - before - own
        assert taken <= sequence.nbytes + 65536
        assert sequence.nbytes <= allocation.nbytes(2000, chunk=100)
    sequence.cut(sequence.length)
    moment = sequence.snapshot()
    taken = mx.get_active_memory() - before - own
    assert taken <= sequence.nbytes + moment.nbytes + 65536
    del sequence, moment, full, windowed, state, queries, keys, _
    gc.collect()
    assert mx.get_active_memory() - before <= 65536


@pytest.mark.usefixtures("real_buffers")
def test_compacting_gives_the_memory_of_every_layer_back() -> None:
    kinds = (Full(heads=4, key_dim=32, value_dim=32),) * 6
    gc.collect()
    before = mx.get_active_memory()
    sequence = Allocation(kinds, mx.float32).layers()
    sequence.reserve(2048)
    keys = mx.ones((1, 4, 100, 32))
    for cache in sequence.stores:
        assert isinstance(cache, FullCache)
        cache.attend(keys, keys, keys, scale=SCALE)
    mx.eval(sequence.arrays)
    del keys
    full = mx.get_active_memory() - before
    assert full >= 6 * 2048 * 4 * 64 * 4
    sequence.compact()
    assert sequence.nbytes == 6 * 100 * 4 * 64 * 4
    assert mx.get_active_memory() - before <= sequence.nbytes + 65536


def test_a_fork_and_a_mark_take_nothing() -> None:
    sequence = Allocation(ATTENTION, mx.float32).layers()
    sequence.reserve(4096)
    run(ATTENTION, sequence, ids_of(1000, 1))
    gc.collect()
    before = mx.get_active_memory()
    others = [sequence.fork(900), sequence.mark(), sequence.fork(1000).mark()]
    for other in others:
        mx.eval(other.arrays)
    assert mx.get_active_memory() - before < 4096


def test_states_and_tokens_are_reckoned_by_their_types() -> None:
    allocation = Allocation((FULL, sliding(5), STATE, NoCache(), SharedWith(0)), mx.bfloat16)
    token = KV_HEADS * 2 * DIM * 2
    states = 2 * WIDTH * 2 + WIDTH * 4
    assert allocation.token_bytes == token
    assert allocation.nbytes(0) == states
    assert allocation.nbytes(9) == states + 16 * token + 15 * token
    assert allocation.nbytes(800) == states + 800 * token + 15 * token
    assert allocation.snapshot_nbytes == states + 4 * token


def test_quantized_tokens_are_reckoned_by_their_bits() -> None:
    how = KVQuantization(keys=None, values=Quantized(bits=4, group_size=32))
    kind = Full(heads=2, key_dim=40, value_dim=40)
    allocation = Allocation((kind,), mx.bfloat16, how)
    # Forty values fill two groups of 32, each with a scale and a bias.
    assert allocation.token_bytes == 2 * (40 * 2 + 2 * (32 * 4 // 8 + 2 * 2))


# Context shift.


def test_a_shift_turns_the_keys_of_the_layers_that_store_and_moves_all() -> None:
    sequence = Allocation(WINDOWS, mx.float32).layers()
    run(WINDOWS, sequence, ids_of(30, 1))
    turned: list[tuple[int, int]] = []

    def turn(layer: int, keys: mx.array, by: int) -> mx.array:
        turned.append((layer, by))
        return keys

    assert sequence.can_shift
    sequence.drop(2, 12, turn)
    assert turned == [(0, -10), (1, -10)]
    assert [store.length for store in sequence.stores] == [20] * 4
    assert sequence.fork(20).length == 20
    run(WINDOWS, sequence, [1])
    assert sequence.length == 21


@pytest.mark.parametrize(("stack", "can"), [("attention", True), ("hybrid", False)])
def test_states_cannot_forget_the_middle(stack: str, can: bool) -> None:
    assert Allocation(STACKS[stack], mx.float32).layers().can_shift is can
