"""What a request gives back is kept once, with the snapshots that later ones need."""

from __future__ import annotations

from itertools import pairwise

from tests.core.engine.pool.asking import fed, held, hit, key_of, pin_at, pool_of, put


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
