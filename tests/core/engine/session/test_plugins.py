"""What plugins see of a session: their logits processors and their observers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.core.engine.session.sessions import DRAWN, PROMPT, alone, begun, running

import phyla
from phyla.engine.engine import load
from phyla.testing import write_checkpoint
from phyla.testing.mixed import mixed, mixed_registry

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import mlx.core as mx


class Recording:
    """A processor that writes down what it is told."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, ...]] = []

    def __call__(self, tokens: Sequence[int], logits: mx.array) -> mx.array:
        self.seen.append(tuple(tokens))
        return logits


def test_processors_are_told_the_reply_of_all_calls(
    plain: phyla.Engine, monkeypatch: pytest.MonkeyPatch, ahead: bool
) -> None:
    record = Recording()
    monkeypatch.setattr(type(plain._registry), "logits_processors", lambda self, options: (record,))
    with running(plain, ahead=ahead), begun(plain) as session:
        whole = alone(plain, PROMPT, DRAWN)
        expected, record.seen = record.seen, []
        session.generate({**DRAWN, "max_tokens": 3})
        session.generate({**DRAWN, "max_tokens": 5})
    assert record.seen == expected
    assert record.seen[-1] == whole.tokens[:7]


def test_a_processor_that_fails_harms_only_its_call(
    plain: phyla.Engine, monkeypatch: pytest.MonkeyPatch, ahead: bool
) -> None:
    whole = alone(plain, PROMPT, DRAWN)
    fails_at: int | None = 0

    def process(tokens: Sequence[int], logits: mx.array) -> mx.array:
        if len(tokens) == fails_at:
            raise KeyError("its own trouble")
        return logits

    monkeypatch.setattr(
        type(plain._registry), "logits_processors", lambda self, options: (process,)
    )
    for place in (0, 3):
        fails_at = place
        with running(plain, ahead=ahead), begun(plain) as session:
            for _ in range(2):
                with pytest.raises(phyla.PluginError):
                    session.generate({**DRAWN, "max_tokens": 8})
                assert session.tokens == (*PROMPT, *whole.tokens[:place])
            fails_at = None
            rest = session.generate({**DRAWN, "max_tokens": 8 - place})
            assert rest.tokens == whole.tokens[place:]


def test_observers_hear_of_a_sessions_replies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[phyla.Reply] = []

    class Listening:
        def finished(self, reply: phyla.Reply) -> None:
            heard.append(reply)

    registry = mixed_registry()
    monkeypatch.setattr(type(registry), "observers", lambda self: (Listening(),))
    folder = write_checkpoint(tmp_path / "tiny", mixed("f"), registry=registry)
    with load(folder, registry=registry) as engine, engine.session() as session:
        session.append_text("hello")
        reply = session.generate({"max_tokens": 2})
        session.append_text("more")
        assert heard == [reply]
