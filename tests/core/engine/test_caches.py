"""The stores: however a sequence is cut, forked and rewound, a layer attends over its own tokens.

The oracle is one softmax under one mask over everything, written without the engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phyla.engine import caches
from phyla.engine.caches import FullCache, RecurrentCache, SharedCache, SlidingCache
from phyla.engine.tape import PLAIN, codec
from phyla.family import Full, Recurrent, Sliding
from phyla.family.rope import RopeConfig
from phyla.family.step import Step
from phyla.kv_quantization import BITS, GROUP_SIZES, Quantized
from phyla.nn import Rope

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from phyla.engine.tape import Codec

HEADS, KV_HEADS, KEY_DIM, VALUE_DIM = 4, 2, 8, 6
SCALE = 0.5

chunkings = st.lists(st.integers(1, 12), min_size=1, max_size=8)


@pytest.fixture(scope="module", autouse=True)
def small_buffers() -> Iterator[None]:
    """Buffers so small that a few tokens make them grow and slide."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(caches, "BLOCK", 8)
        patch.setattr(caches, "MARGIN", 3)
        yield


class Tokens(NamedTuple):
    """What a layer projects of some tokens."""

    queries: mx.array
    keys: mx.array
    values: mx.array

    @property
    def size(self) -> int:
        return self.keys.shape[2]

    def cut(self, start: int, stop: int) -> Tokens:
        return Tokens(*(part[:, :, start:stop] for part in self))

    def then(self, other: Tokens) -> Tokens:
        return Tokens(
            *(mx.concatenate(list(pair), axis=2) for pair in zip(self, other, strict=True))
        )


def tokens(count: int, seed: int = 0, *, kv_heads: int = KV_HEADS) -> Tokens:
    parts = mx.random.split(mx.random.key(seed), 3)
    return Tokens(
        mx.random.normal((1, HEADS, count, KEY_DIM), key=parts[0]),
        mx.random.normal((1, kv_heads, count, KEY_DIM), key=parts[1]),
        mx.random.normal((1, kv_heads, count, VALUE_DIM), key=parts[2]),
    )


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


def mask(
    count: int, window: int | None, blocks: Sequence[tuple[int, int]] = ()
) -> NDArray[np.bool_]:
    """What each of `count` tokens sees; blocks are `(start, stop)` among all of them."""
    query, place = np.mgrid[:count, :count]
    seen = place <= query
    for start, stop in blocks:
        seen[start:stop, start:stop] = True
    return seen if window is None else seen & (query - place < window)


def softmax(
    all_tokens: Tokens, seen: NDArray[np.bool_], sinks: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """`[1, heads, T, value_dim]`, in double precision."""
    queries, keys, values = (np.array(part, np.float64) for part in all_tokens)
    group = queries.shape[1] // keys.shape[1]
    keys, values = np.repeat(keys, group, axis=1), np.repeat(values, group, axis=1)
    scores = np.where(seen, SCALE * queries @ keys.swapaxes(-1, -2), -np.inf)
    if sinks is not None:
        column = np.broadcast_to(sinks[None, :, None, None], (*scores.shape[:-1], 1))
        scores = np.concatenate([scores, column], axis=-1)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return weights[..., : keys.shape[2]] @ values


def expected(all_tokens: Tokens, window: int | None) -> NDArray[np.float64]:
    return softmax(all_tokens, mask(all_tokens.size, window))


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


def assert_same(found: NDArray[Any], right: NDArray[np.float64]) -> None:
    assert found.shape == right.shape
    np.testing.assert_allclose(found, right, atol=2e-5)


def assert_goes_on(cache: FullCache, past: Tokens, window: int | None, seed: int = 77) -> None:
    """What follows is as after a fresh run of `past`, whatever the cache was through."""
    assert cache.length == past.size
    new = tokens(5, seed)
    found = feed(cache, new, [2, 1])
    assert_same(found, expected(past.then(new), window)[:, :, past.size :])


windows = st.none() | st.integers(1, 20)


# Chunks, windows, heads.


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


# Media blocks.


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


# Memory.


@pytest.mark.parametrize("window", [1, 8, 30])
@pytest.mark.parametrize("chunk", [1, 3, 50])
def test_bug_5_a_window_stays_bounded_when_several_tokens_come_per_call(
    window: int, chunk: int
) -> None:
    cache = SlidingCache(sliding(window))
    needed = window - 1 + caches.MARGIN
    most = needed + max(caches.BLOCK, needed // 2, chunk)
    for at in range(0, 300, chunk):
        feed(cache, tokens(chunk, at))
        assert cache.arrays[0].shape[2] <= most
        assert cache.length - cache.start <= most


def test_what_is_reserved_is_taken_once_and_no_more() -> None:
    cache = FullCache(full())
    cache.reserve(60)
    feed(cache, tokens(3))
    taken = cache.nbytes
    assert taken == 64 * KV_HEADS * (KEY_DIM + VALUE_DIM) * 4
    feed(cache, tokens(57), [1])
    assert cache.nbytes == taken


def test_a_fork_takes_what_is_reserved_for_it_and_no_more() -> None:
    cache = FullCache(full())
    cache.reserve(600)
    feed(cache, tokens(50))
    fork = cache.fork(50)
    fork.reserve(56)
    feed(fork, tokens(3))
    assert fork.nbytes == 56 * KV_HEADS * (KEY_DIM + VALUE_DIM) * 4


def address(array: Any) -> int:
    view: NDArray[np.float32] = np.asarray(memoryview(array))
    return view.__array_interface__["data"][0]


def addresses(cache: FullCache) -> list[int]:
    mx.eval(*cache.arrays)
    return [address(array) for array in cache.arrays]


def growing(window: int | None, past: Tokens) -> FullCache:
    """A store that has room for ten tokens more."""
    cache = store(window)
    cache.reserve(past.size + 10)
    feed(cache, past)
    if isinstance(cache, SlidingCache):
        # Let it slide, so that there is room again.
        cache._make_room(past.keys, past.values)
    assert cache._keys.capacity - (cache.length - cache.start) >= 10
    return cache


@pytest.mark.parametrize("window", [None, 30])
def test_no_token_costs_a_copy_of_those_before(window: int | None) -> None:
    past = tokens(40)
    cache = growing(window, past)
    before = addresses(cache)
    for at in range(10):
        feed(cache, tokens(1, at))
        assert addresses(cache) == before


@pytest.mark.parametrize("window", [None, 30])
def test_a_fork_costs_nothing_until_one_of_both_appends(window: int | None) -> None:
    past = tokens(40)
    cache = growing(window, past)
    before = addresses(cache)
    fork = cache.fork(40)
    assert addresses(fork) == before
    assert addresses(cache) == before


@pytest.mark.parametrize("window", [None, 30])
def test_a_mark_that_is_dropped_leaves_no_copy_behind(window: int | None) -> None:
    past = tokens(40)
    cache = growing(window, past)
    before = addresses(cache)
    for at in range(8):
        mark = cache.mark()
        new = tokens(1, at)
        out = cache.attend(*new, scale=SCALE)
        if at % 3 == 0:
            cache = mark
        del mark
        mx.eval(*cache.arrays)
        del out
        assert addresses(cache) == before


@pytest.mark.parametrize("window", [None, 1, 5, 30])
@pytest.mark.parametrize("original_first", [True, False])
@pytest.mark.parametrize("how", ["fork", "mark", "shorter fork"])
def test_whoever_appends_first_the_other_is_untouched(
    window: int | None, original_first: bool, how: str
) -> None:
    past = tokens(40)
    cache = store(window)
    feed(cache, past)
    length = max(cache.floor, 38) if how == "shorter fork" else 40
    other = cache.mark() if how == "mark" else cache.fork(length)
    pair = [(cache, 40, 1), (other, length, 2)]
    for each, held, seed in pair if original_first else reversed(pair):
        assert_goes_on(each, past.cut(0, held), window, seed)
    # And once more, now that both have buffers of their own.
    assert_goes_on(cache, past.then(tokens(5, 1)), window, 3)
    assert_goes_on(other, past.cut(0, length).then(tokens(5, 2)), window, 4)


def test_forks_of_forks_go_their_own_ways() -> None:
    past = tokens(21)
    cache = store(None)
    feed(cache, past)
    line = [cache]
    for _ in range(4):
        line.append(line[-1].fork(line[-1].length - 3))
    for number, fork in enumerate(reversed(line)):
        length = 21 - 3 * (4 - number)
        assert_goes_on(fork, past.cut(0, length), None, seed=number)


# Cutting.


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


def poison(count: int) -> Tokens:
    """Tokens that nobody who sees one of them can hide."""
    clean = tokens(count, 13)
    return Tokens(
        clean.queries, mx.full(clean.keys.shape, 1e4), mx.full(clean.values.shape, mx.nan)
    )


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


# Snapshots.


@given(
    before=st.integers(0, 40),
    after=st.integers(1, 40),
    window=st.integers(1, 20),
    sizes=chunkings,
)
@settings(max_examples=25, deadline=None)
def test_a_snapshot_of_a_window_outlives_all_that_follows(
    before: int, after: int, window: int, sizes: list[int]
) -> None:
    past = tokens(before)
    cache = SlidingCache(sliding(window))
    feed(cache, past, sizes)
    moment = cache.snapshot()
    mx.eval(moment.arrays)
    kept = [np.array(array) for array in moment.arrays]
    feed(cache, poison(after), sizes)
    for number in range(2):
        back = cache.at(moment, before)
        assert back.floor <= back.length
        assert_goes_on(back, past, window, seed=number)
    for array, held in zip(moment.arrays, kept, strict=True):
        assert np.array_equal(np.array(array), held)
        assert array.shape[2] == min(before, window - 1)


# Compacting.


@given(sizes=chunkings, window=windows, reserved=st.integers(0, 200), cut=st.integers(0, 3))
@settings(max_examples=40, deadline=None)
def test_compacting_changes_nothing_but_the_memory(
    sizes: list[int], window: int | None, reserved: int, cut: int
) -> None:
    whole = tokens(sum(sizes))
    cache = store(window)
    cache.reserve(reserved)
    feed(cache, whole, sizes)
    length = max(cache.floor, whole.size - cut)
    cache.cut(length)
    before = cache.nbytes
    cache.compact()
    assert cache.nbytes <= before
    held = length if window is None else min(length, window - 1 + caches.MARGIN)
    assert cache.arrays[0].shape[2] <= held + caches.BLOCK + held // 4
    assert_goes_on(cache, whole.cut(0, length), window)


# Dropping tokens from the middle.


def rotated(part: mx.array, positions: Sequence[int], rope: Rope) -> mx.array:
    places = mx.array([list(positions)], dtype=mx.int32)
    return rope(Step(ids=places, positions=places, extents=(1000,)))(part)


def place(new: Tokens, positions: Sequence[int], rope: Rope) -> Tokens:
    queries, keys = (rotated(part, positions, rope) for part in new[:2])
    return Tokens(queries, keys, new.values)


ROPES = (
    RopeConfig(theta=100.0),
    RopeConfig(theta=100.0, partial_rotary_factor=0.5),
    RopeConfig(theta=100.0, type="linear", factor=4.0),
    RopeConfig(theta=100.0, type="yarn", factor=4.0, original_max_position_embeddings=32),
)


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


# Quantized keys and values.


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


# Other kinds.


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


def test_states_start_at_zero_and_are_replaced_whole() -> None:
    kind = Recurrent(shapes=((3, 2), (4,)), dtypes=(None, "float32"))
    cache = RecurrentCache(kind, mx.bfloat16)
    conv, state = cache.states
    assert (conv.shape, conv.dtype) == ((1, 3, 2), mx.bfloat16)
    assert (state.shape, state.dtype) == ((1, 4), mx.float32)
    assert not conv.any()
    assert not state.any()
    cache.advance(conv + 1, state + 2, tokens=5)
    assert (cache.length, cache.floor) == (5, 5)
    assert cache.states[1].tolist() == [[2.0] * 4]
    assert cache.nbytes == 3 * 2 * 2 + 4 * 4


def test_a_state_can_be_cut_nowhere_but_where_it_is() -> None:
    cache = RecurrentCache(Recurrent(shapes=((2,),), dtypes=(None,)), mx.float32)
    cache.advance(mx.ones((1, 2)), tokens=3)
    cache.cut(3)
    for length in (0, 2, 4):
        with pytest.raises(AssertionError):
            cache.cut(length)
        with pytest.raises(AssertionError):
            cache.fork(length)


def test_a_state_that_goes_on_leaves_forks_marks_and_snapshots_alone() -> None:
    cache = RecurrentCache(Recurrent(shapes=((2,),), dtypes=(None,)), mx.float32)
    cache.advance(mx.ones((1, 2)), tokens=3)
    fork, mark, moment = cache.fork(3), cache.mark(), cache.snapshot()
    cache.advance(cache.states[0] * 7, tokens=2)
    restored = cache.at(moment, 3)
    for other in (fork, mark, restored):
        assert (other.length, other.states[0].tolist()) == (3, [[1.0, 1.0]])
        other.advance(other.states[0] * 3, tokens=1)
    assert moment[0].tolist() == [[1.0, 1.0]]
    assert (cache.length, cache.states[0].tolist()) == (5, [[7.0, 7.0]])


def test_a_state_that_is_a_view_gives_the_whole_back_when_it_is_compacted() -> None:
    cache = RecurrentCache(Recurrent(shapes=((64,),), dtypes=(None,)), mx.float32)
    before = mx.get_active_memory()
    chunk = mx.zeros((4096, 64)) + 1
    cache.advance(chunk[-1:], tokens=4096)
    mx.eval(cache.arrays)
    del chunk
    cache.compact()
    mx.eval(cache.arrays)
    assert mx.get_active_memory() - before < 65536
