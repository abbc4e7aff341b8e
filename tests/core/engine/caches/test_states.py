"""The states of recurrent layers: replaced whole, cut nowhere, kept by forks and snapshots."""

from __future__ import annotations

import mlx.core as mx
import pytest

from phyla.engine.caches import RecurrentCache
from phyla.family import Recurrent


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
