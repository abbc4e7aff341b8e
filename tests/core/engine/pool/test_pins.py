"""A pinned prefix is found until its deadline, whatever happens to its entry."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.core.engine.pool.asking import clock_of, held, hit, key_of, pin_at, pool_of, put
from tests.core.engine.pool.token_layers import KINDS, Kind

if TYPE_CHECKING:
    from phyla.engine.pool import Pin


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
