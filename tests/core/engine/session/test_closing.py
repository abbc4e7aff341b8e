"""Closed sessions, and sessions of closed engines, are of no use and harm nobody."""

from __future__ import annotations

import gc
import threading
from typing import TYPE_CHECKING

import pytest
from tests.core.engine.session.agreement import assert_busy, assert_same
from tests.core.engine.session.sessions import DRAWN, PROMPT, alone, begun, held_up, make

import phyla

if TYPE_CHECKING:
    from pathlib import Path


def test_a_closed_session_is_of_no_use(plain: phyla.Engine) -> None:
    session = begun(plain)
    other = session.fork()
    session.close()
    assert_busy(session, "closed")
    assert session.position == 0
    session.cancel()
    session.clear_cancel()
    session.close()
    assert_busy(session, "closed")
    assert_same(other.generate(DRAWN), alone(plain, PROMPT, DRAWN))
    other.close()


def test_closing_a_session_cancels_what_it_does(plain: phyla.Engine) -> None:
    session = begun(plain)
    stream = session.stream({**DRAWN, "max_tokens": None})
    next(stream)
    session.close()
    assert stream.result().finish_reason in ("cancelled", "context_full")
    assert session.position == 0


def test_a_session_of_a_closed_engine_is_of_no_use(tmp_path: Path) -> None:
    engine = make(tmp_path / "tiny", "attention")
    session, idle = begun(engine), engine.session()
    with held_up(engine):
        stream = session.stream({**DRAWN, "max_tokens": None})
        threading.Thread(target=engine.close).start()
        assert engine.machine.closing.wait(60)
    assert stream.result().finish_reason == "cancelled"
    engine.close()
    for each in (session, idle):
        assert_busy(each, "closed")
        each.cancel()
        each.clear_cancel()
        assert_busy(each, "closed")
    with pytest.raises(phyla.BusyError, match="closed"):
        engine.session()
    session.close()
    assert_busy(session, "closed")
    idle.close()


def test_a_session_keeps_its_engine(tmp_path: Path) -> None:
    session = begun(make(tmp_path / "tiny", "attention"))
    gc.collect()
    assert len(session.generate(DRAWN).tokens) == 8
    session.close()
