"""The pool gives back what was fed, as much of it as can be restored, and stays within its limits.

The layers here hold the tokens themselves, and refuse what real ones could not do.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar, Literal
from weakref import WeakSet

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from phyla.caching import CacheLimits
from phyla.engine.pool import Key, Lease, Pin, Pool

if TYPE_CHECKING:
    from collections.abc import Iterable

Kind = Literal["attention", "sliding", "recurrent"]
KINDS: tuple[Kind, ...] = ("attention", "sliding", "recurrent")
WINDOW, MARGIN, STATE = 6, 3, 5


@dataclass(frozen=True, eq=False)
class State:
    """The state of layers that cannot be cut everywhere, after certain tokens."""

    kind: Kind
    tokens: tuple[object, ...]

    @property
    def length(self) -> int:
        return len(self.tokens)

    @property
    def nbytes(self) -> int:
        sizes = {"attention": 0, "sliding": min(len(self.tokens), WINDOW), "recurrent": STATE}
        return sizes[self.kind]


@dataclass(eq=False)
class Tokens:
    """Layers of one attention layer, and of another layer of the given kind."""

    kind: Kind
    tokens: tuple[object, ...] = ()
    floor: int = 0
    capacity: int = 0
    alive: WeakSet[Tokens] = field(default_factory=WeakSet)

    def __post_init__(self) -> None:
        self.alive.add(self)

    @property
    def length(self) -> int:
        return len(self.tokens)

    @property
    def nbytes(self) -> int:
        held = min(self.length, WINDOW + MARGIN) if self.kind == "sliding" else 0
        return self.capacity + (STATE if self.kind == "recurrent" else held)

    def append(self, *tokens: object) -> None:
        self.tokens += tokens
        self.capacity = max(self.capacity, -(-self.length // 8) * 8)
        if self.kind == "recurrent":
            self.floor = self.length
        elif self.kind == "sliding" and self.length > WINDOW + MARGIN:
            self.floor = max(self.floor, self.length - MARGIN)

    def fork(self, length: int) -> Tokens:
        assert self.floor <= length <= self.length, "cut where it cannot be cut"
        return Tokens(self.kind, self.tokens[:length], self.floor, self.capacity, self.alive)

    def cut(self, length: int) -> None:
        assert self.floor <= length <= self.length, "cut where it cannot be cut"
        self.tokens = self.tokens[:length]

    def snapshot(self) -> State:
        return State(self.kind, self.tokens)

    def fork_at(self, snapshot: State) -> Tokens:
        copy = Tokens(self.kind, self.tokens, self.floor, self.capacity, self.alive)
        copy.restore(snapshot)
        return copy

    def restore(self, snapshot: State) -> None:
        assert snapshot.tokens == self.tokens[: snapshot.length], "another sequence's state"
        self.tokens = snapshot.tokens
        self.floor = {"attention": 0, "sliding": max(0, self.length - 1)}.get(
            self.kind, self.length
        )

    def compact(self) -> None:
        self.capacity = self.length


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def pool_of(
    bytes: int | None = None,  # noqa: A002
    *,
    entries: int = 64,
    idle_seconds: float | None = None,
    min_tokens: int = 1,
) -> Pool[Tokens]:
    limits = CacheLimits(bytes, entries, idle_seconds, min_tokens)
    return Pool(limits, clock=Clock())


def clock_of(pool: Pool[Tokens]) -> Clock:
    clock = pool.clock
    assert isinstance(clock, Clock)
    return clock


def key_of(text: str, *spans: tuple[int, int]) -> Key:
    return Key(tuple(text), spans)


def fed(kind: Kind, text: str) -> Tokens:
    layers = Tokens(kind)
    layers.append(*text)
    return layers


def states(kind: Kind, text: str, *lengths: int) -> list[State]:
    return [State(kind, tuple(text[:length])) for length in lengths]


def put(
    pool: Pool[Tokens],
    text: str,
    *spans: tuple[int, int],
    kind: Kind = "attention",
    at: tuple[int, ...] = (),
    stable: int | None = None,
    pins: tuple[Pin, ...] = (),
    namespace: str = "",
) -> Tokens:
    """Store a sequence that was run cold, with snapshots at some lengths."""
    layers = fed(kind, text)
    pool.store(
        None,
        key_of(text, *spans),
        layers,
        snapshots=states(kind, text, *at),
        stable=len(text) if stable is None else stable,
        namespace=namespace,
        pins=pins,
    )
    return layers


def hit(pool: Pool[Tokens], text: str, *spans: tuple[int, int], namespace: str = "") -> int:
    """How much of it is cached; nothing changes."""
    return pool.explain(key_of(text, *spans), namespace=namespace).cached_tokens


def held(lease: Lease[Tokens]) -> str:
    assert lease.layers is not None
    return "".join(str(token) for token in lease.layers.tokens)


def pin_at(length: int, *, until: float = 200.0, name: str | None = None, owner: object = None):
    return Pin(length, until, name, owner)


# What is found


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_pool_gives_a_cold_lease(kind: Kind) -> None:
    pool = pool_of()
    lease = pool.acquire(key_of("abc"))
    assert (lease.length, lease.layers, lease.snapshots) == (0, None, ())
    assert lease.explanation.limited_by == "empty"


def test_the_same_prompt_again_leaves_its_last_token_to_run() -> None:
    pool = pool_of()
    put(pool, "abcdef")
    lease = pool.acquire(key_of("abcdef"))
    assert held(lease) == "abcde"
    assert lease.explanation.limited_by == "nothing"


def test_a_recurrent_state_steps_back_to_the_nearest_snapshot() -> None:
    pool = pool_of()
    put(pool, "abcdef", kind="recurrent", at=(2, 4))
    lease = pool.acquire(key_of("abcdef"))
    assert held(lease) == "abcd"
    assert [kept.length for kept in lease.snapshots] == [2, 4]


def test_three_questions_after_one_system_message_share_its_snapshot() -> None:
    pool = pool_of()
    put(pool, "SYSTEMone", kind="recurrent", at=(6,))
    for text in ("SYSTEMtwo", "SYSTEMthree"):
        lease = pool.acquire(key_of(text))
        assert held(lease) == "SYSTEM"
        assert lease.layers is not None
        lease.layers.append(*text[6:])
        pool.store(lease, key_of(text), lease.layers, snapshots=(), stable=len(text))
    assert hit(pool, "SYSTEMthree!") == len("SYSTEMthree")


def test_a_window_that_moved_on_is_not_cut_below_its_margin() -> None:
    pool = pool_of()
    text = "abcdefghijklmnop"
    put(pool, text, kind="sliding")
    assert hit(pool, text) == len(text) - 1
    assert hit(pool, text[:13] + "Z") == 13
    assert hit(pool, text[:12] + "Z") == 0


def test_the_longest_prefix_over_all_entries_is_taken() -> None:
    pool = pool_of()
    put(pool, "abcdefgh", kind="recurrent", at=(2,))
    put(pool, "abcdXXXX", kind="recurrent", at=(3,))
    assert hit(pool, "abcdefZ") == 3


def test_a_hit_ends_inside_no_media_span_of_either_side() -> None:
    pool = pool_of()
    put(pool, "abIIIIcd", (2, 6))
    assert hit(pool, "abIIIIcZ", (2, 6)) == 7
    assert hit(pool, "abIIIIZ", (2, 6)) == 6
    assert hit(pool, "abIIZ") == 2
    assert hit(pool, "abIIII", (2, 6)) == 2, "its last token must run, so all of the item must"
    put(pool, "klmnop")
    assert hit(pool, "klmnZ", (3, 5)) == 3


def test_a_snapshot_inside_a_media_span_is_passed_over() -> None:
    pool = pool_of()
    put(pool, "abIIIIcd", (2, 6), kind="recurrent", at=(1, 4))
    assert hit(pool, "abIIIIcZ", (2, 6)) == 1


def test_a_prefill_cancelled_inside_a_media_item_is_reused_up_to_its_start() -> None:
    pool = pool_of()
    layers = fed("attention", "abII")
    pool.store(None, key_of("abIIIIcd", (2, 6)), layers, snapshots=(), stable=8)
    assert hit(pool, "abIIIIcd", (2, 6)) == 2


def test_another_image_at_the_same_place_is_no_hit_past_its_start() -> None:
    pool = pool_of()
    first = Key(("a", b"1", b"1", "c", "d"), ((1, 3),))
    other = Key(("a", b"2", b"2", "c", "d"), ((1, 3),))
    layers = Tokens("attention")
    layers.append(*first.items)
    pool.store(None, first, layers, snapshots=(), stable=5)
    explanation = pool.explain(other)
    assert (explanation.cached_tokens, explanation.limited_by) == (1, "divergence")
    assert "item begins" in explanation.detail


def test_prefixes_below_the_minimum_are_neither_kept_nor_reused() -> None:
    pool = pool_of(min_tokens=4)
    put(pool, "abc")
    assert pool.stats().entries == 0
    put(pool, "abcdef")
    assert hit(pool, "abcX") == 0
    assert hit(pool, "abcdX") == 4


def test_namespaces_do_not_see_each_other() -> None:
    pool = pool_of()
    put(pool, "abcdef", namespace="one", pins=(pin_at(3),))
    assert hit(pool, "abcdef", namespace="two") == 0
    assert pool.explain(key_of("abcdef"), namespace="two").limited_by == "empty"
    assert pool.pinned_length(key_of("abcdef"), namespace="two") == 0
    put(pool, "abcdefgh", namespace="two")
    assert pool.stats().entries == 2
    assert hit(pool, "abcdef", namespace="one") == 5


@pytest.mark.parametrize(
    ("prompt", "spans", "limited_by", "cached", "says"),
    [
        ("abcdefghij", (), "nothing", 9, "last token"),
        ("abcdXX", (), "divergence", 4, "at token 4"),
        ("abcdefghijkl", (), "divergence", 10, "ends after 10"),
        ("Xabc", (), "divergence", 0, "at token 0"),
        ("abX", (), "minimum", 0, "least that is reused, 3"),
        ("abcdeX", ((3, 6),), "media", 3, "begins at token 3"),
        ("abcdX", ((1, 5),), "media", 0, "begins at token 1"),
    ],
)
def test_an_explanation_says_what_limited_the_hit(
    prompt: str, spans: tuple[tuple[int, int], ...], limited_by: str, cached: int, says: str
) -> None:
    pool = pool_of(min_tokens=3)
    put(pool, "abcdefghij")
    explanation = pool.explain(key_of(prompt, *spans))
    assert (explanation.limited_by, explanation.cached_tokens) == (limited_by, cached)
    assert says in explanation.detail
    assert explanation.prompt_tokens == len(prompt)


def test_an_explanation_names_the_nearest_state_where_snapshots_limit_the_hit() -> None:
    pool = pool_of()
    put(pool, "abcdefghij", kind="recurrent", at=(4,))
    explanation = pool.explain(key_of("abcdefgX"))
    assert (explanation.limited_by, explanation.cached_tokens) == ("snapshot", 4)
    assert explanation.matched_tokens == 7
    assert "at 4 tokens" in explanation.detail


@pytest.mark.parametrize("limits", [CacheLimits(bytes=0), CacheLimits(entries=0)])
def test_limits_of_zero_turn_the_pool_off(limits: CacheLimits) -> None:
    pool: Pool[Tokens] = Pool(limits)
    put(pool, "a" * 40)
    assert pool.stats().entries == 0
    assert pool.explain(key_of("a" * 40)).limited_by == "disabled"


def test_explaining_changes_nothing() -> None:
    pool = pool_of(20, idle_seconds=10)
    put(pool, "abcdefgh")
    put(pool, "12345678")
    before = pool.stats()
    clock_of(pool).now += 5
    assert hit(pool, "abcdefgh") == 7
    assert pool.stats() == before
    put(pool, "ABCDEFGH")
    assert hit(pool, "abcdefgh") == 0, "it was still the least recently used"
    clock_of(pool).now += 7
    assert hit(pool, "12345678") == 0, "what acquire would drop is not promised"


# Lending and forking


def test_the_next_turn_is_lent_the_layers_themselves() -> None:
    pool = pool_of()
    layers = put(pool, "user1 reply", stable=5)
    lease = pool.acquire(key_of("user1 r2"))
    assert lease.lent
    assert lease.layers is layers
    assert held(lease) == "user1 r"
    assert pool.nbytes == 0, "the request counts it"
    assert pool.stats().lent_entries == 1


def test_a_request_that_parts_before_the_stable_length_gets_a_copy() -> None:
    pool = pool_of()
    layers = put(pool, "system one", stable=9)
    lease = pool.acquire(key_of("system two"))
    assert not lease.lent
    assert lease.layers is not layers
    assert held(lease) == "system "
    assert hit(pool, "system one!") == 10


def test_a_conversation_that_goes_on_moves_its_entry() -> None:
    pool = pool_of()
    put(pool, "abc")
    lease = pool.acquire(key_of("abcdef"))
    assert lease.layers is not None
    lease.layers.append(*"def")
    pool.store(lease, key_of("abcdef"), lease.layers, snapshots=(), stable=6)
    assert pool.stats().entries == 1
    assert pool.nbytes == 6
    assert hit(pool, "abcdefg") == 6


def test_what_is_lent_is_never_lent_again_but_may_be_forked() -> None:
    pool = pool_of()
    layers = put(pool, "abcd")
    first = pool.acquire(key_of("abcdef"))
    layers.append(*"ef")
    second = pool.acquire(key_of("abcdef"))
    assert first.lent
    assert not second.lent
    assert held(second) == "abcd", "what its owner appended is not in the entry's key"


@pytest.mark.parametrize("kind", KINDS)
def test_the_state_at_which_an_entry_was_lent_stays_available(kind: Kind) -> None:
    pool = pool_of()
    layers = put(pool, "system", kind=kind)
    lease = pool.acquire(key_of("system one"))
    layers.append(*" one, and a long way on from there")
    assert held(pool.acquire(key_of("system two"))) == "system"
    whole = "system one, and a long way on from there"
    pool.store(lease, key_of(whole), layers, snapshots=(), stable=40)
    assert hit(pool, "system!") == 6


def test_a_pin_beyond_the_hit_means_a_copy() -> None:
    pool = pool_of()
    put(pool, "abcdef", stable=2, pins=(pin_at(5),))
    lease = pool.acquire(key_of("abcX"))
    assert not lease.lent
    assert pool.pinned_length(key_of("abcdef")) == 5
    clock_of(pool).now = 200
    assert pool.acquire(key_of("abcX")).lent, "the pin has ended"


def test_a_released_lease_takes_its_entry_along() -> None:
    pool = pool_of()
    put(pool, "abcd")
    lease = pool.acquire(key_of("abcdef"))
    pool.release(lease)
    pool.release(lease)
    assert lease.layers is None
    assert pool.stats().entries == 0
    assert hit(pool, "abcdef") == 0


def test_releasing_a_copy_leaves_the_entry() -> None:
    pool = pool_of()
    put(pool, "abcd", stable=4)
    pool.release(pool.acquire(key_of("abX")))
    assert hit(pool, "abcde") == 4


def test_snapshots_of_the_lease_are_kept_without_being_given_back() -> None:
    pool = pool_of()
    put(pool, "abcdefgh", kind="recurrent", at=(2, 5))
    lease = pool.acquire(key_of("abcdeXYZ"))
    assert lease.layers is not None
    lease.layers.append(*"XYZ")
    pool.store(lease, key_of("abcdeXYZ"), lease.layers, snapshots=(), stable=8)
    pool.shrink_to(30)
    assert pool.stats().entries == 1
    assert hit(pool, "abcdeXY") == 5
    assert hit(pool, "abQ") == 2


def test_an_error_while_an_entry_is_cut_costs_only_that_entry() -> None:
    pool = pool_of()
    layers = put(pool, "abcd", stable=0)
    put(pool, "wxyz")
    layers.floor = 0
    layers.cut = _fails  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(MemoryError):
        pool.acquire(key_of("abX"))
    assert pool.stats().entries == 1
    assert hit(pool, "wxyz!") == 4


def _fails(length: int) -> None:
    raise MemoryError


# Storing


def test_an_entry_takes_the_place_of_the_shorter_ones_it_continues() -> None:
    pool = pool_of()
    put(pool, "ab", kind="recurrent", pins=(pin_at(2),))
    put(pool, "abcd", kind="recurrent")
    put(pool, "abcdef", kind="recurrent")
    assert pool.stats().entries == 1
    assert [hit(pool, text) for text in ("abX", "abcdX", "abcdefX")] == [2, 4, 6]
    assert pool.pinned_length(key_of("abX")) == 2


def test_a_lent_entry_is_not_merged_into_one_that_continues_it() -> None:
    pool = pool_of()
    layers = put(pool, "ab")
    lease = pool.acquire(key_of("abXY"))
    put(pool, "abcd")
    assert pool.stats().entries == 2
    layers.append(*"XY")
    pool.store(lease, key_of("abXY"), layers, snapshots=(), stable=4)
    assert [hit(pool, text) for text in ("abcde", "abXYZ")] == [4, 4]


def test_snapshots_of_the_lease_that_the_new_key_parts_from_are_dropped() -> None:
    pool = pool_of()
    put(pool, "abcdef", kind="recurrent", at=(2, 5))
    lease = pool.acquire(key_of("abcdefg"))
    pool.store(lease, key_of("abXYZW"), fed("recurrent", "abXYZW"), snapshots=(), stable=6)
    assert [hit(pool, text) for text in ("abXYZW", "abcdef")] == [2, 2]


def test_an_equal_key_is_kept_once() -> None:
    pool = pool_of()
    put(pool, "abcd")
    put(pool, "abcd")
    assert pool.stats().entries == 1
    assert pool.nbytes == 4


def test_a_cancelled_prefill_is_kept_as_far_as_it_went() -> None:
    pool = pool_of()
    layers = fed("attention", "abc")
    pool.store(None, key_of("abcdef"), layers, snapshots=(), stable=6)
    assert hit(pool, "abcdef") == 3


def test_spare_capacity_is_given_up() -> None:
    pool = pool_of()
    layers = fed("attention", "abc")
    assert layers.nbytes == 8
    pool.store(None, key_of("abc"), layers, snapshots=(), stable=3)
    assert pool.nbytes == 3


def test_layers_that_ran_a_step_further_than_the_key_are_reused_up_to_the_key() -> None:
    pool = pool_of()
    layers = fed("attention", "abcdX")
    pool.store(None, key_of("abcd"), layers, snapshots=(), stable=4)
    lease = pool.acquire(key_of("abcdef"))
    assert held(lease) == "abcd"


def test_snapshots_are_thinned_in_the_middle() -> None:
    text = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMN"
    pool = pool_of()
    pins = (pin_at(9), pin_at(10), pin_at(11))
    put(pool, text, kind="recurrent", at=tuple(range(1, 40)), pins=pins)
    lease = pool.acquire(key_of(text))
    lengths = [kept.length for kept in lease.snapshots]
    assert len(lengths) <= 16
    assert lengths[0] == 1
    assert {9, 10, 11} <= set(lengths)
    assert lengths[-4:] == [36, 37, 38, 39]
    assert max(b - a for a, b in pairwise(lengths)) <= 8


# Limits


def test_the_least_recently_used_entry_makes_room() -> None:
    pool = pool_of(12)
    put(pool, "aaaa")
    put(pool, "bbbb")
    put(pool, "cccc")
    pool.release(pool.acquire(key_of("aaX")))
    put(pool, "dddd")
    assert [hit(pool, c * 5) for c in "abcd"] == [4, 0, 4, 4]
    assert pool.stats().evictions == 1
    assert pool.nbytes == 12


def test_room_is_made_before_the_new_entry_is_admitted() -> None:
    class Watched(Pool[Tokens]):
        most = 0

        def _remember(self, entry) -> None:
            super()._remember(entry)
            self.most = max(self.most, self.nbytes)

    pool = Watched(CacheLimits(10, min_tokens=1))
    for text in ("aaaa", "bbbbbb", "cccccccc", "dddd"):
        put(pool, text)
    assert pool.most <= 10
    assert hit(pool, "ddddd") == 4


def test_what_is_larger_than_the_limit_is_not_kept_and_evicts_nothing() -> None:
    pool = pool_of(10)
    put(pool, "aaaa")
    put(pool, "aaaabbbbbbbbbbb")
    assert hit(pool, "aaaab") == 4
    assert pool.stats().evictions == 0


def test_what_is_larger_than_the_limit_is_kept_up_to_its_pin() -> None:
    pool = pool_of(10)
    put(pool, "abcdefghijklmnop", pins=(pin_at(7), pin_at(12), pin_at(3)))
    assert pool.nbytes == 7
    assert pool.pinned_length(key_of("abcdefghijklmnop")) == 7
    assert hit(pool, "abcdefghijklmnop") == 7


def test_what_is_too_large_with_all_its_snapshots_is_kept_with_the_latest() -> None:
    pool = pool_of(20 + 5 * STATE)
    put(pool, "abcdefghijklmnopqrst", kind="recurrent", at=(2, 4, 6, 8, 10, 12, 14, 18))
    lease = pool.acquire(key_of("abcdefghijklmnopqrst"))
    assert [kept.length for kept in lease.snapshots][-1] == 18
    assert lease.length == 18
    assert 1 <= len(lease.snapshots) <= 4


def test_no_more_entries_are_kept_than_allowed() -> None:
    pool = pool_of(entries=2)
    for text in ("aaaa", "bbbb", "cccc"):
        put(pool, text)
    assert pool.stats().entries == 2
    assert hit(pool, "aaaaa") == 0


def test_a_lent_entry_comes_back_within_the_limits() -> None:
    pool = pool_of(10, entries=2)
    layers = put(pool, "aaaa")
    lease = pool.acquire(key_of("aaaaaa"))
    put(pool, "bbbb")
    put(pool, "cccc")
    layers.append(*"aa")
    pool.store(lease, key_of("aaaaaa"), layers, snapshots=(), stable=6)
    assert pool.nbytes == 10
    assert [hit(pool, text) for text in ("aaaaaaa", "bbbbb", "ccccc")] == [6, 0, 4]


def test_shrinking_leaves_what_is_lent() -> None:
    pool = pool_of()
    put(pool, "aaaa")
    put(pool, "bbbb")
    lease = pool.acquire(key_of("aaaaa"))
    pool.shrink_to(0)
    assert pool.stats().entries == 1
    assert held(lease) == "aaaa"


def test_an_entry_nobody_uses_is_dropped_after_a_while() -> None:
    pool = pool_of(idle_seconds=10)
    put(pool, "aaaa")
    put(pool, "bbbb", pins=(pin_at(2, until=150),))
    clock_of(pool).now += 10
    pool.expire()
    assert [hit(pool, text) for text in ("aaaaa", "bbbbb")] == [0, 4]
    clock_of(pool).now = 150
    pool.expire()
    assert pool.stats().entries == 0
    assert pool.stats().expirations == 2


def test_forty_turns_against_a_byte_limit_never_exceed_it() -> None:
    pool = pool_of(500)
    text = ""
    for turn in range(40):
        text += chr(ord("a") + turn) * 10
        key = key_of(text)
        lease = pool.acquire(key)
        layers = Tokens("recurrent") if lease.layers is None else lease.layers
        layers.append(*text[layers.length :])
        pool.store(lease, key, layers, snapshots=[layers.snapshot()], stable=len(text))
        assert lease.length == (len(text) - 10 if turn else 0)
        assert pool.nbytes <= 500


def test_clearing_drops_everything_but_what_is_lent() -> None:
    alive: WeakSet[Tokens] = WeakSet()
    pool = pool_of()
    for text in ("aaaa", "bbbb"):
        layers = Tokens("recurrent", alive=alive)
        layers.append(*text)
        pool.store(None, key_of(text), layers, snapshots=(), stable=4, pins=(pin_at(4, name=text),))
    del layers
    lease = pool.acquire(key_of("aaaaa"))
    pool.clear()
    assert list(alive) == [lease.layers]
    assert pool.stats().pinned_entries == 0
    pool.release(lease)
    assert not alive
    assert not pool._trees


def test_stats_count_hits_and_the_tokens_they_saved() -> None:
    pool = pool_of(100)
    pool.acquire(key_of("abcdef"))
    put(pool, "abcdef", pins=(pin_at(2),))
    pool.release(pool.acquire(key_of("abcX")))
    stats = pool.stats()
    assert (stats.hits, stats.misses, stats.hit_tokens) == (1, 1, 3)
    assert (stats.entries, stats.pinned_entries, stats.lent_entries) == (1, 1, 0)
    assert (stats.bytes, stats.limit_bytes) == (6, 100)


# Pins


def test_a_pinned_prefix_outlives_eviction_until_its_deadline() -> None:
    pool = pool_of(20)
    put(pool, "abcdefghij", kind="recurrent", at=(4,), pins=(pin_at(4),))
    for text in ("kkkkkkkk", "llllllll", "mmmmmmmm"):
        put(pool, text)
    assert pool.pinned_length(key_of("abcdefghij")) == 4
    assert hit(pool, "abcdefghij") == 4
    assert pool.nbytes <= 20
    clock_of(pool).now = 200
    assert pool.pinned_length(key_of("abcdefghij")) == 0
    put(pool, "nnnnnnnn")
    put(pool, "oooooooo")
    assert hit(pool, "abcdefghij") == 0


def test_pins_are_cut_only_when_nothing_else_is_left() -> None:
    pool = pool_of()
    put(pool, "abcdefgh", pins=(pin_at(3), pin_at(5)))
    put(pool, "xxxxxxxx")
    pool.shrink_to(8)
    assert (hit(pool, "abcdefgh!"), hit(pool, "xxxxxxxx")) == (8, 0)
    pool.shrink_to(6)
    assert hit(pool, "abcdefgh") == 5
    pool.shrink_to(0)
    assert hit(pool, "abcdefgh") == 5
    assert pool.nbytes == 5


@pytest.mark.parametrize("kind", KINDS)
def test_a_pin_survives_its_entry_being_continued_and_cut(kind: Kind) -> None:
    pool = pool_of(60)
    put(pool, "system, tools", kind=kind, at=(6,), stable=13, pins=(pin_at(6),))
    lease = pool.acquire(key_of("system, tools and a user"))
    assert not lease.lent, "a request that fails would take the pin along"
    layers = lease.layers
    assert layers is not None
    layers.append(*" and a user")
    whole = key_of("system, tools and a user")
    pool.store(lease, whole, layers, snapshots=(), stable=24)
    pool.shrink_to(0)
    assert pool.pinned_length(whole) == 6
    assert held(pool.acquire(key_of("system!"))) == "system"


def test_a_pin_where_the_layers_can_still_be_cut_outlives_that() -> None:
    pool = pool_of()
    put(pool, "a window that moves", kind="sliding", pins=(pin_at(18),))
    lease = pool.acquire(key_of("a window that moves on"))
    layers = lease.layers
    assert layers is not None
    layers.append(*" on and on and on")
    whole = "a window that moves on and on and on"
    pool.store(lease, key_of(whole), layers, snapshots=(), stable=36)
    assert hit(pool, "a window that move!") == 18


def test_room_for_the_pins_of_an_entry_in_use_stays_reserved() -> None:
    pool = pool_of(10)
    put(pool, "abcdef", pins=(pin_at(6),))
    lease = pool.acquire(key_of("abcdefgh"))
    layers = lease.layers
    assert layers is not None
    put(pool, "123456", pins=(pin_at(6),))
    assert pool.pinned_length(key_of("123456")) == 0, "four bytes are left"
    layers.append(*"ghijkl")
    pool.store(lease, key_of("abcdefghijkl"), layers, snapshots=(), stable=12)
    assert pool.pinned_length(key_of("abcdefghijkl")) == 6
    assert pool.nbytes == 6


@pytest.mark.parametrize(
    "pin",
    [pin_at(9), pin_at(2), pin_at(5), pin_at(4), pin_at(3, until=100.0)],
    ids=["beyond the key", "too short", "inside an item", "state lost", "over already"],
)
def test_a_pin_that_could_never_be_found_is_left_out(pin: Pin) -> None:
    pool = pool_of(min_tokens=3)
    key = key_of("abcdIIgh", (4, 6))
    put(pool, "abcdIIgh", (4, 6), kind="recurrent", at=(3,), pins=(pin,))
    assert pool.pinned_length(key) == 0
    assert pool.add_pins(key, [pin]) == ()
    assert pool.stats().pinned_entries == 0


def test_pins_can_be_added_to_what_is_there() -> None:
    pool = pool_of()
    put(pool, "abcdefgh", kind="recurrent", at=(4,))
    pins = [pin_at(4, name="four"), pin_at(6), pin_at(8)]
    assert pool.add_pins(key_of("abcdefgh"), pins) == (pins[0], pins[2])
    assert pool.add_pins(key_of("abX"), [pin_at(3)]) == ()
    assert pool.pinned_length(key_of("abcdefX")) == 4


def test_pins_can_be_added_to_what_is_lent() -> None:
    pool = pool_of(30)
    layers = put(pool, "abcd", kind="recurrent")
    lease = pool.acquire(key_of("abcdefgh"))
    layers.append(*"efgh")
    pin = pin_at(4)
    assert pool.add_pins(key_of("abcd"), [pin]) == (pin,)
    pool.store(lease, key_of("abcdefgh"), layers, snapshots=(), stable=8)
    pool.shrink_to(0)
    assert hit(pool, "abcdefgh") == 4


def test_a_request_that_fails_takes_its_own_pins_along() -> None:
    pool = pool_of()
    mine, theirs = object(), object()
    put(pool, "abcdef", pins=(pin_at(3, owner=mine), pin_at(2, owner=theirs)))
    pool.drop_pins(mine)
    assert pool.pinned_length(key_of("abcdef")) == 2


def test_a_named_pin_is_taken_away_by_name_in_its_namespace() -> None:
    pool = pool_of()
    put(pool, "abcdef", pins=(pin_at(3, name="system"),))
    assert not pool.unpin("system", namespace="other")
    assert pool.unpin("system")
    assert not pool.unpin("system")
    assert pool.pinned_length(key_of("abcdef")) == 0


def test_namespaces_may_use_the_same_name_for_a_pin() -> None:
    pool = pool_of()
    put(pool, "abcdef", pins=(pin_at(3, name="system"),), namespace="one")
    put(pool, "uvwxyz", pins=(pin_at(4, name="system"),), namespace="two")
    assert pool.pinned_length(key_of("abcdef"), namespace="one") == 3
    assert pool.unpin("system", namespace="two")
    assert pool.pinned_length(key_of("abcdef"), namespace="one") == 3
    assert pool.unpin("system"), "in whichever it is"
    assert pool.pinned_length(key_of("abcdef"), namespace="one") == 0


def test_a_new_pin_of_a_name_takes_the_old_ones_place() -> None:
    pool = pool_of()
    put(pool, "abcdef", pins=(pin_at(3, name="system"),))
    put(pool, "uvwxyz", pins=(pin_at(4, name="system"),))
    assert pool.pinned_length(key_of("abcdef")) == 0
    pool.add_pins(key_of("abcdef"), [pin_at(2, name="system")])
    assert pool.pinned_length(key_of("uvwxyz")) == 0
    assert pool.pinned_length(key_of("abcdef")) == 2


def test_pins_of_equal_length_on_other_prefixes_do_not_replace_each_other() -> None:
    pool = pool_of()
    put(pool, "abcdef", pins=(pin_at(3),))
    put(pool, "uvwxyz", pins=(pin_at(3),))
    pool.add_pins(key_of("uvwxyz"), [pin_at(3, until=300)])
    assert pool.pinned_length(key_of("abcdef")) == 3
    assert pool.pinned_length(key_of("uvwxyz")) == 3


def test_of_two_pins_of_one_name_in_a_request_the_last_counts() -> None:
    pool = pool_of()
    put(pool, "abcdef", pins=(pin_at(5, name="system"), pin_at(3, name="system")))
    assert pool.pinned_length(key_of("abcdef")) == 3


def test_a_request_that_pins_again_prolongs_and_never_shortens() -> None:
    pool = pool_of()
    put(pool, "abcdef", pins=(pin_at(3, until=150),))
    pool.add_pins(key_of("abcdef"), [pin_at(3, until=300)])
    pool.add_pins(key_of("abcdef"), [pin_at(3, until=120)])
    clock_of(pool).now = 250
    assert pool.pinned_length(key_of("abcdef")) == 3


# Anything in any order


@dataclass(eq=False)
class Request:
    namespace: str
    key: Key
    lease: Lease[Tokens]
    layers: Tokens
    snapshots: list[State] = field(default_factory=list)


Span = tuple[int, int]
NAMESPACES = st.sampled_from(["one", "two"])
# What to go on from: which of the latest, and how many of its tokens to leave away.
STARTS = st.tuples(st.integers(0, 3), st.sampled_from([0, 0, 0, 1, 2, 3, 5, 8]))
TEXTS = st.text("ab", min_size=1, max_size=6)
SPANS = st.one_of(st.none(), st.none(), st.tuples(st.integers(0, 4), st.integers(1, 4)))
CHUNKS = st.lists(st.tuples(st.integers(1, 6), st.booleans()), min_size=1, max_size=4)
# How long the key's tail is that is not stable; pins as length, time to live and name.
TAILS = st.integers(0, 6)
PINS = st.lists(
    st.tuples(st.integers(1, 12), st.integers(5, 60), st.sampled_from([None, None, "x"])),
    max_size=2,
)


class AnyOrder(RuleBasedStateMachine):
    """Requests come, run, end and fail; the pool is held against the tokens themselves."""

    requests = Bundle("requests")
    seen: ClassVar[Counter[str]] = Counter()

    @initialize(
        kind=st.sampled_from(KINDS),
        limit=st.sampled_from([None, 40, 80, 160]),
        entries=st.sampled_from([2, 5, 64]),
        idle=st.sampled_from([None, 30.0]),
    )
    def begin(self, kind: Kind, limit: int | None, entries: int, idle: float | None) -> None:
        self.kind: Kind = kind
        self.clock = Clock()
        self.pool: Pool[Tokens] = Pool(CacheLimits(limit, entries, idle, 2), self.clock)
        self.alive: WeakSet[Tokens] = WeakSet()
        self.running: list[Request] = []
        self.fed: list[tuple[str, Key]] = []
        self.pins: list[tuple[str, tuple[object, ...], Pin]] = []

    # What a request does

    def acquire(
        self, namespace: str, start: tuple[int, int], text: str, span: Span | None
    ) -> Request:
        """With a prompt that goes on with, or parts from, something that was fed before."""
        which, back = start
        base = self.fed[-1 - which % len(self.fed)][1] if self.fed else Key(())
        base = base.cut(max(0, len(base) - back))
        # Half a media item is no prompt.
        base = base.cut(min((a for a, b in base.spans if b > len(base)), default=len(base)))
        spans, new = base.spans, list(text)
        if span is not None and span[0] < len(new):
            first, last = span[0], min(sum(span), len(new))
            new[first:last] = [str(last - first)] * (last - first)
            spans = (*spans, (len(base) + first, len(base) + last))
        # A tenant's tokens are marked as its own.
        items = tuple(f"{namespace}{str(item)[-1]}" for item in (*base.items, *new))
        key = Key(items, spans)
        explanation = self.pool.explain(key, namespace=namespace)
        expected = self.longest(namespace, key)
        lease = self.pool.acquire(key, namespace=namespace)
        assert lease.explanation == explanation
        assert explanation.cached_tokens == lease.length == expected
        assert lease.length < len(key)
        assert not any(a < lease.length < b for a, b in key.spans)
        layers = lease.layers or Tokens(self.kind, alive=self.alive)
        assert layers.tokens == key.items[: lease.length]
        for kept in lease.snapshots:
            assert isinstance(kept, State)
            assert kept.tokens == key.items[: kept.length]
        self.seen["lent" if lease.lent else "forked" if lease.length else "cold"] += 1
        self.seen["restored"] += lease.explanation.limited_by == "snapshot" and lease.length > 0
        request = Request(namespace, key, lease, layers)
        self.running.append(request)
        return request

    def longest(self, namespace: str, key: Key) -> int:
        """The best length by trying every length at every entry."""
        return max(
            (
                length
                for entry in self.pool._entries
                if entry.namespace == namespace and not self.pool._idle(entry, self.clock.now)
                for length in range(2, min(len(key) - 1, len(entry.key)) + 1)
                if entry.key.items[:length] == key.items[:length]
                and not any(a < length < b for a, b in (*key.spans, *entry.key.spans))
                and (
                    entry.layers.floor <= length <= entry.layers.length
                    or any(kept.length == length for kept in entry.snapshots)
                )
            ),
            default=0,
        )

    def feed(self, request: Request, chunks: list[tuple[int, bool]]) -> None:
        """Chunks of the prompt, and then of the reply; after some of them, a snapshot."""
        for count, snapshot in chunks:
            done = request.layers.length
            if done == len(request.key):
                reply = tuple(f"{request.namespace}{item}" for item in "abcabc"[:count])
                request.key = Key(request.key.items + reply, request.key.spans)
            request.layers.append(*request.key.items[done : done + count])
            if snapshot:
                request.snapshots.append(request.layers.snapshot())

    def store(self, request: Request, tail: int, pins: list[tuple[int, int, str | None]]) -> None:
        namespace = request.namespace
        made = [Pin(n, self.clock.now + ttl, name, request) for n, ttl, name in pins]
        key = request.key.cut(request.layers.length)
        self.pool.store(
            request.lease,
            request.key,
            request.layers,
            snapshots=request.snapshots,
            stable=max(0, len(key) - tail),
            namespace=namespace,
            pins=made,
        )
        self.forget(request)
        self.fed.append((namespace, key))
        placed = {
            id(pin) for entry in self.pool._entries for pin in entry.pins if pin.owner is request
        }
        self.expect(namespace, key, [pin for pin in made if id(pin) in placed])

    def forget(self, request: Request) -> None:
        self.running.remove(request)
        request.layers, request.snapshots = Tokens(self.kind), []  # hypothesis holds on to it

    def expect(self, namespace: str, key: Key, placed: Iterable[Pin]) -> None:
        for pin in placed:
            self.seen["pinned"] += 1
            self.pins = [
                p for p in self.pins if p[0] != namespace or not p[2].name or p[2].name != pin.name
            ]
            self.pins.append((namespace, key.items[: pin.length], pin))

    # In any order

    @rule(
        namespace=NAMESPACES,
        start=STARTS,
        text=TEXTS,
        span=SPANS,
        chunks=CHUNKS,
        tail=TAILS,
        pins=PINS,
    )
    def turn(
        self,
        namespace: str,
        start: tuple[int, int],
        text: str,
        span: Span | None,
        chunks: list[tuple[int, bool]],
        tail: int,
        pins: list[tuple[int, int, str | None]],
    ) -> None:
        """A request from beginning to end, with no other in between."""
        request = self.acquire(namespace, start, text, span)
        rest = len(request.key) - request.layers.length
        self.feed(request, [(rest - rest // 2, True), (max(1, rest // 2), False), *chunks])
        self.store(request, tail, pins)

    @rule(
        target=requests,
        namespace=NAMESPACES,
        start=STARTS,
        text=TEXTS,
        span=SPANS,
        chunks=CHUNKS,
    )
    def arrive(
        self,
        namespace: str,
        start: tuple[int, int],
        text: str,
        span: Span | None,
        chunks: list[tuple[int, bool]],
    ) -> Request:
        request = self.acquire(namespace, start, text, span)
        self.feed(request, chunks)
        return request

    @rule(request=requests, chunks=CHUNKS)
    def run(self, request: Request, chunks: list[tuple[int, bool]]) -> None:
        self.feed(request, chunks)

    @rule(request=consumes(requests), tail=TAILS, pins=PINS)
    def end(self, request: Request, tail: int, pins: list[tuple[int, int, str | None]]) -> None:
        """It ends by itself, or is cancelled, be it in the prefill."""
        self.store(request, tail, pins)

    @rule(request=consumes(requests))
    def fail(self, request: Request) -> None:
        lent = request.lease.entry
        lost = {id(pin) for pin in lent.pins} if lent else set()
        self.pool.release(request.lease)
        self.pool.drop_pins(request)
        self.forget(request)
        self.pins = [p for p in self.pins if id(p[2]) not in lost and p[2].owner is not request]

    @precondition(lambda self: self.fed)
    @rule(
        which=st.integers(0, 3),
        length=st.integers(1, 12),
        ttl=st.integers(5, 60),
        name=st.sampled_from([None, "x", "y"]),
    )
    def pin(self, which: int, length: int, ttl: int, name: str | None) -> None:
        namespace, key = self.fed[-1 - which % len(self.fed)]
        pin = Pin(length, self.clock.now + ttl, name, self)
        self.expect(namespace, key, self.pool.add_pins(key, [pin], namespace=namespace))

    @rule(name=st.sampled_from(["x", "y"]), namespace=NAMESPACES)
    def unpin(self, name: str, namespace: str) -> None:
        now = self.clock.now
        gone = [p for p in self.pins if p[0] == namespace and p[2].name == name]
        found = self.pool.unpin(name, namespace=namespace)
        assert found == any(now < pin.deadline for _, _, pin in gone)
        self.pins = [p for p in self.pins if not any(p is other for other in gone)]

    @rule(seconds=st.integers(1, 30))
    def wait(self, seconds: int) -> None:
        self.clock.now += seconds
        self.pool.expire()

    @rule(nbytes=st.integers(0, 80))
    def shrink(self, nbytes: int) -> None:
        self.pool.shrink_to(nbytes)
        now = self.clock.now
        assert self.pool.nbytes <= nbytes or all(
            entry.stripped(now) for entry in self.pool._entries if not entry.lent
        )

    @rule()
    def clear(self) -> None:
        self.pool.clear()
        self.pins = []
        assert self.pool.nbytes == 0
        assert set(self.alive) == {request.layers for request in self.running}

    # What always holds

    @invariant()
    def limits_hold(self) -> None:
        limits, entries = self.pool.limits, self.pool._entries
        kept = [entry for entry in entries if not entry.lent]
        held = sum(e.layers.nbytes + sum(s.nbytes for s in e.snapshots) for e in kept)
        assert self.pool.nbytes == held
        assert limits.bytes is None or held <= limits.bytes
        assert len(kept) <= limits.entries

    @invariant()
    def entries_hold_what_was_fed_and_nothing_of_others(self) -> None:
        for entry in self.pool._entries:
            assert entry.layers.tokens[: len(entry.key)] == entry.key.items
            assert all(str(item).startswith(entry.namespace) for item in entry.key.items)
            for kept in entry.snapshots:
                assert isinstance(kept, State)
                assert kept.tokens == entry.key.items[: kept.length]
        for request in self.running:
            assert request.layers.tokens == request.key.items[: request.layers.length]

    @invariant()
    def pins_are_found_until_their_deadline(self) -> None:
        for namespace, items, pin in self.pins:
            if self.clock.now < pin.deadline:
                key = Key((*items, "and more"))
                assert self.pool.pinned_length(key, namespace=namespace) == len(items)
                found = self.pool.explain(key, namespace=namespace)
                assert found.cached_tokens == len(items)

    def teardown(self) -> None:
        self.seen["evicted"] += self.pool.stats().evictions
        self.pool.clear()
        for request in list(self.running):
            self.pool.release(request.lease)
            self.forget(request)
        assert not self.alive
        assert not self.pool._trees


def test_requests_in_any_order_are_given_what_was_fed_within_the_limits() -> None:
    AnyOrder.seen.clear()
    run_state_machine_as_test(
        AnyOrder,
        settings=settings(
            max_examples=30,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
    # A machine that never gets anywhere would find nothing wrong.
    assert min(AnyOrder.seen[what] for what in ("cold", "forked", "lent", "pinned")) > 0
