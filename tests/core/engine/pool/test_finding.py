"""The pool finds the longest prefix that can be restored, and says what limited it."""

from __future__ import annotations

import pytest
from tests.core.engine.pool.asking import clock_of, fed, held, hit, key_of, pin_at, pool_of, put
from tests.core.engine.pool.token_layers import KINDS, Kind, Tokens

from phyla.caching import CacheLimits
from phyla.engine.pool import Key, Pool


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
