"""A session does one thing at a time, and refuses others meanwhile."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING

from tests.core.engine.session.agreement import assert_busy
from tests.core.engine.session.sessions import (
    DRAWN,
    GREEDY,
    PROMPT,
    begun,
    chunks,
    held_up,
    on_feed,
)

if TYPE_CHECKING:
    import phyla


def test_position_can_be_read_and_work_is_refused_while_it_reads(plain: phyla.Engine) -> None:
    entered, gate = threading.Semaphore(0), threading.Semaphore(0)

    def wait(count: int) -> None:
        entered.release()
        gate.acquire()

    with chunks(plain, 8), plain.session() as session, on_feed(wait):
        done: Future[int] = Future()
        thread = threading.Thread(target=lambda: done.set_result(session.append_tokens(PROMPT)))
        thread.start()
        seen = []
        for _ in range(4):
            entered.acquire()
            seen.append(session.position)
            assert session.tokens == tuple(PROMPT[: seen[-1]])
            assert_busy(session)
            gate.release()
        thread.join()
    assert seen == [0, 8, 16, 24]
    assert done.result() == 30


def test_work_is_refused_while_it_writes_and_taken_when_the_end_is_seen(
    plain: phyla.Engine,
) -> None:
    with begun(plain) as session:
        with held_up(plain):
            stream = session.stream(GREEDY)
            assert session.position == 30
            assert_busy(session)
        for event in stream:
            if event.kind == "finished":
                break
        assert session.append_tokens([1]) == 39


def test_a_dropped_stream_frees_its_session(plain: phyla.Engine) -> None:
    with begun(plain) as session:
        stream = session.stream({**DRAWN, "max_tokens": None})
        next(stream)
        del stream
        gc.collect()
        with session._working:  # until it has noticed
            pass
        assert session.position > 30
        session.reset()
