"""A cancelled append stops within a chunk, says what it left, and can be gone on with."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.core.engine.session.agreement import assert_same, assert_sticky
from tests.core.engine.session.sessions import (
    DRAWN,
    GREEDY,
    PROMPT,
    alone,
    chunks,
    embeddings,
    on_feed,
    running,
    strand,
)
from tests.core.engine.session.talking import END, Talking, assistant, user

import phyla
import phyla.engine.strand as strand_module

if TYPE_CHECKING:
    from phyla.engine.session import Session


def assert_unread(session: Session) -> None:
    """Nothing but the rest is taken, and nothing changes."""
    before = session.tokens, session.unread
    for act in (
        lambda: session.append_tokens([1]),
        lambda: session.append_tokens(before[1][1:]) if len(before[1]) > 1 else session.stream(),
        lambda: session.append_text("x"),
        lambda: session.append_embeddings(np.zeros((1, strand(session).width))),
        lambda: session.append_chat("x"),
        lambda: session.generate(GREEDY),
        lambda: session.stream(GREEDY),
    ):
        with pytest.raises(phyla.RequestError, match="unread"):
            act()
    assert before == (session.tokens, session.unread)


def test_a_cancelled_append_stops_within_a_chunk_and_can_be_gone_on_with(
    every: phyla.Engine, ahead: bool
) -> None:
    whole = alone(every, PROMPT, DRAWN)
    for stop_at in range(4):
        with running(every, ahead=ahead), chunks(every, 8), every.session() as session:

            def cancel(count: int, session: Session = session, at: int = stop_at) -> None:
                if count == at:
                    assert session.position == 8 * at
                    session.cancel()

            with on_feed(cancel) as sizes:
                if stop_at < 3:
                    with pytest.raises(phyla.CancelledError, match="unread"):
                        session.append_tokens(PROMPT)
                    assert sizes == [8] * (stop_at + 1)
                else:  # too late: all was read
                    assert session.append_tokens(PROMPT) == 30
            read = min(30, 8 * (stop_at + 1)) if stop_at < 3 else 30
            assert session.position == read
            assert session.tokens == tuple(PROMPT[:read])
            assert session.unread == tuple(PROMPT[read:])
            assert_sticky(session)
            session.clear_cancel()
            if session.unread:
                assert_unread(session)
                session.append_tokens(session.unread)
            assert session.unread == ()
            assert_same(session.generate(DRAWN), whole)


def test_the_rest_may_come_with_more_behind_it(plain: phyla.Engine) -> None:
    with chunks(plain, 8), plain.session() as session:
        with on_feed(lambda count: session.cancel()), pytest.raises(phyla.CancelledError):
            session.append_tokens(PROMPT)
        session.clear_cancel()
        assert session.append_tokens([*session.unread, 5, 6]) == 32
        assert session.tokens == (*PROMPT, 5, 6)
        assert_same(session.generate(DRAWN), alone(plain, [*PROMPT, 5, 6], DRAWN))


def test_a_rest_that_is_cancelled_again_leaves_its_own_rest(plain: phyla.Engine) -> None:
    with chunks(plain, 8), plain.session() as session:
        with on_feed(lambda count: session.cancel()):
            for place in (8, 16, 24):
                session.clear_cancel()
                with pytest.raises(phyla.CancelledError):
                    session.append_tokens(session.unread or PROMPT)
                assert session.unread == tuple(PROMPT[place:])
            session.clear_cancel()
            session.append_tokens(session.unread)
        session.clear_cancel()
        assert_same(session.generate(DRAWN), alone(plain, PROMPT, DRAWN))


def test_cancelled_embeddings_can_be_gone_on_with(every: phyla.Engine) -> None:
    values = embeddings(every, PROMPT)
    whole = alone(every, PROMPT, DRAWN)
    for before in (0, 1, 9):
        with chunks(every, 8), every.session() as session:
            if before:
                session.append_tokens(PROMPT[:before])
            with (
                on_feed(lambda count: count < 2 or session.cancel()),
                pytest.raises(phyla.CancelledError),
            ):
                session.append_embeddings(values[before:])
            read = session.position
            assert session.tokens == (*PROMPT[:before], *[-1] * (read - before))
            assert session.unread == (-1,) * (30 - read)
            session.clear_cancel()
            for wrong in (values[read : read + 1], values[read + 1 :], values[before:]):
                with pytest.raises(phyla.RequestError, match="unread"):
                    session.append_embeddings(wrong)
            with pytest.raises(phyla.RequestError, match="unread"):
                session.append_tokens(PROMPT[read:])
            assert session.append_embeddings(values[read:]) == 30
            assert_same(session.generate(DRAWN), whole)


def test_a_cancelled_chat_is_the_turn_that_its_rest_ends(talk: Talking) -> None:
    session = talk.session
    with chunks(talk.scripted.engine, 8):
        with (
            on_feed(lambda count: session.cancel()),
            pytest.raises(phyla.CancelledError),
        ):
            session.append_chat("What is there to say?")
        session.clear_cancel()
        session.append_tokens(session.unread)
    talk.says("Much." + END)
    with chunks(talk.scripted.engine, 8):
        with (
            on_feed(lambda count: session.cancel()),
            pytest.raises(phyla.CancelledError),
        ):
            session.append_chat("Then say it, one by one.")
        session.clear_cancel()
        with pytest.raises(phyla.RequestError):
            session.append_chat("Then say it, one by one.")
        session.append_tokens(session.unread)
    talk.says("One." + END)
    session.append_chat("Go on.")
    assert talk.text == talk.template(
        [
            user("What is there to say?"), assistant("Much."),
            user("Then say it, one by one."), assistant("One."), user("Go on."),
        ]
    )  # fmt: skip


def test_an_interrupted_append_is_cancelled(
    plain: phyla.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(Future[None]):
        waits = 0

        def result(self, timeout: float | None = None) -> None:
            self.waits += 1
            if self.waits == 1:
                raise KeyboardInterrupt
            return super().result(timeout)

    gate = threading.Event()
    with chunks(plain, 8), plain.session() as session, on_feed(lambda count: gate.wait()):
        with monkeypatch.context() as patch:
            patch.setattr(strand_module, "Future", Interrupted)
            threading.Timer(0.0, gate.set).start()
            with pytest.raises(KeyboardInterrupt):
                session.append_tokens(PROMPT)
        assert session.tokens == tuple(PROMPT[: session.position])
        assert session.unread == tuple(PROMPT[session.position :])
        if session.unread:
            session.append_tokens(session.unread)
        assert_same(session.generate(DRAWN), alone(plain, PROMPT, DRAWN))
