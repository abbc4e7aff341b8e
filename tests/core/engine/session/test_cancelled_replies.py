"""A cancelled reply goes on as if it had not been cancelled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.core.engine.session.agreement import assert_alike, assert_same, assert_sticky
from tests.core.engine.session.sessions import (
    ASCII,
    DRAWN,
    OPTIONS,
    PROMPT,
    alone,
    begun,
    held_up,
    running,
)

import phyla
import phyla.engine.strand as strand_module

if TYPE_CHECKING:
    import pytest

    from phyla.engine.session import Session


def test_a_cancelled_reply_goes_on_as_if_it_had_not_been(every: phyla.Engine, ahead: bool) -> None:
    options = {**OPTIONS["penalties"], **ASCII, "seed": 3, "max_tokens": 40, "logprobs": True}
    whole = alone(every, PROMPT, options)
    with running(every, ahead=ahead), begun(every) as session:
        parts: list[phyla.Reply] = []
        left = 40
        for count in (1, 4, 100):
            if not left:
                break
            stream = session.stream({**options, "max_tokens": left})
            for _ in range(count):
                next(stream, None)
            session.cancel()
            parts.append(stream.result())
            left -= len(parts[-1].tokens)
            assert parts[-1].finish_reason == ("cancelled" if left else "length")
            assert_sticky(session)
            session.clear_cancel()
        assert_alike(parts, whole)


def test_a_reply_is_cancelled_at_a_known_token_and_goes_on(
    every: phyla.Engine, monkeypatch: pytest.MonkeyPatch, ahead: bool
) -> None:
    whole = alone(every, PROMPT, DRAWN)
    take = strand_module.Continuing.take
    with running(every, ahead=ahead):
        for stop_at in range(1, 8):
            with begun(every) as session:

                def taking(
                    self: Any, sampled: Any, session: Session = session, at: int = stop_at
                ) -> bool:
                    goes_on = take(self, sampled)
                    if session.position == 30 + at:
                        session.cancel()
                    return goes_on

                with monkeypatch.context() as patch:
                    patch.setattr(strand_module.Continuing, "take", taking)
                    first = session.generate(DRAWN)
                assert first.finish_reason == "cancelled"
                assert first.tokens == whole.tokens[:stop_at]
                session.clear_cancel()
                with session.fork() as fork:
                    second = fork.generate({**DRAWN, "max_tokens": 8 - stop_at})
                    assert_alike([first, second], whole)
                session.append_tokens([1, 2])
                ids = [*PROMPT, *first.tokens, 1, 2]
                assert_same(session.generate(DRAWN), alone(every, ids, DRAWN))


def test_a_reply_that_is_cancelled_before_it_begins_says_nothing(plain: phyla.Engine) -> None:
    whole = alone(plain, PROMPT, DRAWN)
    with begun(plain) as session:
        first = session.stream({**DRAWN, "max_tokens": 3})
        events = list(first)
        for cancel in (session.cancel, None):
            with held_up(plain):
                stream = session.stream(DRAWN)
                (cancel or stream.cancel)()
            reply = stream.result()
            assert (reply.tokens, reply.text, reply.finish_reason) == ((), "", "cancelled")
            session.clear_cancel()
        assert list(first) == []  # and says it to nobody else
        rest = session.generate({**DRAWN, "max_tokens": 5})
        assert (*first.result().tokens, *rest.tokens) == whole.tokens
        assert len([event for event in events if event.kind == "finished"]) == 1
