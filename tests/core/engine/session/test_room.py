"""What does not fit, into the context or into memory, is refused and changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.core.engine.session.agreement import assert_alike, assert_as_before
from tests.core.engine.session.sessions import ASCII, DRAWN, PROMPT, alone, begun, make, strand
from tests.core.engine.session.talking import END, Talking, assistant, user

import phyla
from phyla.engine.engine import load
from phyla.testing import ScriptedEngine, prompt_ids

if TYPE_CHECKING:
    from pathlib import Path


def test_what_does_not_fit_is_refused_with_numbers(every: phyla.Engine) -> None:
    with every.session(max_seq_len=32) as session:
        assert session.max_seq_len == 32
        with pytest.raises(phyla.ContextOverflowError) as caught:
            session.append_tokens(prompt_ids(40))
        assert (caught.value.limit, caught.value.excess) == (32, 8)
        assert_as_before(session, 0, ())
        session.append_tokens(PROMPT)
        for act in (
            lambda: session.append_tokens([1, 2, 3]),
            lambda: session.append_text("abc"),
            lambda: session.append_embeddings(np.zeros((3, strand(session).width))),
        ):
            with pytest.raises(phyla.ContextOverflowError) as caught:
                act()
            assert (caught.value.limit, caught.value.excess) == (32, 1)
            assert_as_before(session, 30, PROMPT)
        with pytest.raises(phyla.ContextOverflowError):
            session.append_chat("abc")
        reply = session.generate({**DRAWN, "max_tokens": 100})
        assert (len(reply.tokens), reply.finish_reason) == (2, "context_full")
        assert reply.tokens == alone(every, PROMPT, DRAWN).tokens[:2]
        assert session.position == 32
        for _ in range(2):
            with pytest.raises(phyla.ContextOverflowError) as caught:
                session.generate(DRAWN)
            assert (caught.value.limit, caught.value.excess) == (32, 1)
        assert_as_before(session, 32, (*PROMPT, *reply.tokens))


def test_a_chat_that_did_not_fit_can_be_shortened(scripted: ScriptedEngine) -> None:
    talk = Talking(scripted, max_seq_len=80)
    with pytest.raises(phyla.ContextOverflowError):
        talk.session.append_chat("Hi" * 60)
    talk.session.append_chat("Hi")
    talk.says("Yes." + END)
    with pytest.raises(phyla.ContextOverflowError):
        talk.session.append_chat("Hi" * 60)
    talk.session.append_chat("Ho")
    assert talk.text == talk.template([user("Hi"), assistant("Yes."), user("Ho")])
    talk.session.close()


def test_max_tokens_that_just_fit_are_the_length(plain: phyla.Engine) -> None:
    with begun(plain, max_seq_len=34) as session:
        assert session.generate({**DRAWN, "max_tokens": 4}).finish_reason == "length"
        assert session.position == 34


def test_memory_that_is_not_there_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    with make(tmp_path / "tiny", "attention") as big:
        whole = alone(big, PROMPT, {**DRAWN, **ASCII, "max_tokens": 16})
        limit = big._machine.loaded.runtime.nbytes(256)
    with load(tmp_path / "tiny", memory_limit=limit) as engine, begun(engine) as session:
        first = session.generate({**DRAWN, **ASCII})
        with pytest.raises(phyla.MemoryLimitError):
            session.append_tokens(prompt_ids(300))
        with pytest.raises(phyla.MemoryLimitError):
            session.append_chat("a" * 300)
        with pytest.raises(phyla.MemoryLimitError):
            session.append_embeddings(np.zeros((300, 32)))
        with pytest.raises(phyla.MemoryLimitError):
            session.generate({**DRAWN, "seed": 5, "max_tokens": 300})
        assert_as_before(session, 38, (*PROMPT, *first.tokens))
        second = session.generate({**DRAWN, **ASCII, "seed": None})
        assert_alike([first, second], whole)
