"""The pool stays within its limits, and counts what it did."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakSet

from tests.core.engine.pool.asking import clock_of, held, hit, key_of, pin_at, pool_of, put
from tests.core.engine.pool.token_layers import STATE, Tokens

from phyla.engine.pool.shelf import Shelf

if TYPE_CHECKING:
    from phyla.engine.pool.entry import Entry


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
    class Watched(Shelf[Tokens]):
        most = 0

        def add(self, entry: Entry[Tokens]) -> None:
            super().add(entry)
            self.most = max(self.most, self.nbytes)

    pool = pool_of(10)
    pool._shelf = watched = Watched(pool.limits)
    for text in ("aaaa", "bbbbbb", "cccccccc", "dddd"):
        put(pool, text)
    assert watched.most == 10
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
    assert not pool._shelf._trees


def test_stats_count_hits_and_the_tokens_they_saved() -> None:
    pool = pool_of(100)
    pool.acquire(key_of("abcdef"))
    put(pool, "abcdef", pins=(pin_at(2),))
    pool.release(pool.acquire(key_of("abcX")))
    stats = pool.stats()
    assert (stats.hits, stats.misses, stats.hit_tokens) == (1, 1, 3)
    assert (stats.entries, stats.pinned_entries, stats.lent_entries) == (1, 1, 0)
    assert (stats.bytes, stats.limit_bytes) == (6, 100)
