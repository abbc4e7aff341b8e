"""An entry is lent to the conversation that goes on, and forked for others."""

from __future__ import annotations

import pytest
from tests.core.engine.pool.asking import clock_of, held, hit, key_of, pin_at, pool_of, put
from tests.core.engine.pool.token_layers import KINDS, Kind


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
