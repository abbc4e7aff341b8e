"""Sessions begun anew, and forks that go their own ways."""

from __future__ import annotations

import gc

import mlx.core as mx
import pytest
from tests.core.engine.session.agreement import assert_alike, assert_same
from tests.core.engine.session.sessions import (
    ASCII,
    DRAWN,
    GREEDY,
    OPTIONS,
    PROMPT,
    alone,
    begun,
    chunks,
    on_feed,
    running,
    strand,
)

import phyla
from phyla.testing import prompt_ids


def test_a_reset_session_is_like_a_new_one(every: phyla.Engine) -> None:
    whole = alone(every, PROMPT, DRAWN)
    with chunks(every, 8), begun(every, prompt_ids(12, seed=3)) as session:
        session.generate({**DRAWN, "seed": 1})
        session.reset()
        assert (session.position, session.tokens, session.unread) == (0, (), ())
        session.append_tokens(PROMPT)
        assert_same(session.generate(DRAWN), whole)
        with on_feed(lambda count: session.cancel()), pytest.raises(phyla.CancelledError):
            session.append_tokens(PROMPT)
        session.reset()  # also while it is cancelled, which it stays
        assert (session.position, session.unread) == (0, ())
        with pytest.raises(phyla.CancelledError):
            session.append_tokens(PROMPT)
        session.clear_cancel()
        session.append_tokens(PROMPT)
        assert_same(session.generate(DRAWN), whole)


def test_forks_go_their_own_ways(every: phyla.Engine, ahead: bool) -> None:
    with running(every, ahead=ahead), begun(every) as session:
        one = session.fork()
        one.append_tokens([1, 2, 3])
        two = one.fork()
        two.append_tokens([4])
        session.append_tokens([5])
        three = session.fork()
        paths = {
            one: [*PROMPT, 1, 2, 3], two: [*PROMPT, 1, 2, 3, 4], session: [*PROMPT, 5],
            three: [*PROMPT, 5],
        }  # fmt: skip
        for each, ids in paths.items():
            assert each.tokens == tuple(ids)
            assert_same(each.generate(DRAWN), alone(every, ids, DRAWN))
        two.close()
        one.reset()
        one.append_tokens(PROMPT)
        assert_same(one.generate(DRAWN), alone(every, PROMPT, DRAWN))
        more = session.generate({**DRAWN, "max_tokens": 4})
        assert three.generate({**DRAWN, "max_tokens": 4}).tokens == more.tokens
        one.close()
        three.close()


@pytest.mark.parametrize("name", ["drawn", "penalties", "nucleus"])
def test_forks_in_the_middle_of_a_reply_go_on_with_it(
    every: phyla.Engine, name: str, ahead: bool
) -> None:
    options = {**OPTIONS[name], **ASCII, "logprobs": True, "max_tokens": 6}
    whole = alone(every, PROMPT, {**options, "seed": 9, "max_tokens": 12})
    with running(every, ahead=ahead), begun(every) as session:
        first = session.generate({**options, "seed": 9})
        fork = session.fork()
        fork_of_fork = fork.fork()
        other = session.fork()
        other.append_tokens([3])
        assert_same(other.generate({**options, "seed": 2}),
                    alone(every, [*PROMPT, *first.tokens, 3], {**options, "seed": 2}))  # fmt: skip
        for each in (session, fork, fork_of_fork):
            second = each.generate(options)
            assert_alike([first, second], whole)
            assert second.seed == 9
        for each in (other, fork, fork_of_fork):
            each.close()


def test_a_fork_of_what_was_cancelled_has_the_same_rest(plain: phyla.Engine) -> None:
    with chunks(plain, 8), plain.session() as session:
        with on_feed(lambda count: session.cancel()), pytest.raises(phyla.CancelledError):
            session.append_tokens(PROMPT)
        with session.fork() as fork:
            assert fork.unread == session.unread
            with pytest.raises(phyla.RequestError, match="unread"):
                fork.generate(DRAWN)
            fork.append_tokens(fork.unread)
            assert_same(fork.generate(DRAWN), alone(plain, PROMPT, DRAWN))
        assert session.position == 8


def test_a_fork_shares_memory_until_one_of_both_goes_on(plain: phyla.Engine) -> None:
    gc.collect()
    with begun(plain, prompt_ids(250)) as session:
        one = strand(session).nbytes
        before = mx.get_active_memory()
        forks = [session.fork() for _ in range(4)]
        for fork in forks:
            plain._machine.call(lambda fork=fork: mx.eval(strand(fork).cursor.layers.arrays))
        assert mx.get_active_memory() - before < one // 2
        for fork in forks:
            fork.append_tokens([1])
            fork.generate({**GREEDY, "max_tokens": 1})
        assert mx.get_active_memory() - before > 2 * one
        for fork in forks:
            fork.close()
        assert mx.get_active_memory() <= before + 64
