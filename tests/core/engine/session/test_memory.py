"""Memory comes back when a session is closed, reset or dropped."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import mlx.core as mx
import pytest
from tests.core.engine.session.sessions import (
    CONFIGS,
    DRAWN,
    LLAMA,
    begun,
    make,
    running_bytes,
    strand,
)

import phyla
from phyla.engine.engine import load
from phyla.testing import prompt_ids, write_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

    from phyla.engine.session import Session


@pytest.mark.parametrize("name", list(CONFIGS))
def test_memory_comes_back(name: str, tmp_path: Path) -> None:
    with make(tmp_path / "tiny", name) as engine:

        def use() -> list[Session]:
            session = begun(engine, prompt_ids(300))
            session.generate(DRAWN)
            fork = session.fork()
            fork.generate(DRAWN)
            fork.append_tokens([1])
            assert running_bytes(engine) >= strand(session).nbytes + strand(fork).nbytes > 0
            return [session, fork, session.fork()]

        for first in use():  # whatever is made once is made now
            first.close()
        gc.collect()
        before = mx.get_active_memory()
        assert running_bytes(engine) == 0
        kept = use()
        for closed in kept:
            closed.close()
            closed.close()
        assert running_bytes(engine) == 0
        assert mx.get_active_memory() <= before + 64
        kept += use()
        kept[:] = kept[:3]
        gc.collect()
        assert running_bytes(engine) == 0
        assert mx.get_active_memory() <= before + 64
        for emptied in use():
            emptied.reset()
            assert emptied.position == 0
        assert mx.get_active_memory() <= before + 1024  # states that are nought
        assert len(kept) == 3


def test_a_dropped_session_needs_no_collector(plain: phyla.Engine) -> None:
    gc.collect()
    running_bytes(plain)
    before = mx.get_active_memory(), running_bytes(plain)
    gc.disable()
    try:
        session = begun(plain)
        session.generate(DRAWN)
        session.generate(DRAWN)
        assert mx.get_active_memory() > before[0]
        del session
        assert running_bytes(plain) == before[1]
        assert mx.get_active_memory() <= before[0] + 64
    finally:
        gc.enable()


def test_a_closed_session_keeps_no_model(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "tiny", LLAMA)
    gc.collect()
    before = mx.get_active_memory()
    engine = phyla.load(folder)
    session, other = begun(engine), begun(engine)
    session.generate(DRAWN)
    session.close()
    engine.close()
    other.close()
    assert mx.get_active_memory() <= before + 64
    assert (session.position, other.tokens, other.max_seq_len) == (0, (), 512)


def test_closing_the_engine_frees_the_model_though_a_session_lives(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "tiny", LLAMA)
    gc.collect()
    before = mx.get_active_memory()
    engine = load(folder)
    session = engine.session()
    session.append_text("hello")
    engine.close()
    assert mx.get_active_memory() <= before + 64
    with pytest.raises(phyla.BusyError):
        session.append_text("more")
    session.close()
