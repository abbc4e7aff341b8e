"""What has to agree: replies with one another, and a session with what it was before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.core.engine.session.sessions import GREEDY, strand

import phyla

if TYPE_CHECKING:
    from collections.abc import Sequence

    from phyla.engine.session import Session


def assert_as_before(session: Session, position: int, tokens: Sequence[int]) -> None:
    assert session.position == position == len(session.tokens)
    assert session.tokens == tuple(tokens)
    assert session.unread == ()


def assert_same(one: phyla.Reply, other: phyla.Reply) -> None:
    assert_alike([one], other)
    assert (one.seed, one.finish_reason) == (other.seed, other.finish_reason)


def assert_alike(parts: Sequence[phyla.Reply], whole: phyla.Reply) -> None:
    """The parts, joined, are the whole."""
    assert [token for part in parts for token in part.tokens] == list(whole.tokens)
    assert "".join(part.text for part in parts) == whole.text
    assert "".join(part.reasoning for part in parts) == whole.reasoning
    calls = [(call.name, call.arguments, call.raw) for part in parts for call in part.tool_calls]
    assert calls == [(call.name, call.arguments, call.raw) for call in whole.tool_calls]
    usages = [part.usage for part in parts]
    assert sum(u.completion_tokens for u in usages) == whole.usage.completion_tokens
    assert sum(u.reasoning_tokens for u in usages) == whole.usage.reasoning_tokens
    assert parts[-1].finish_reason == whole.finish_reason
    if whole.logprobs is not None:
        entries = [entry for part in parts for entry in part.logprobs or ()]
        assert [e.token for e in entries] == [e.token for e in whole.logprobs]
        found, expected = ([e.logprob for e in es] for es in (entries, whole.logprobs))
        assert found == pytest.approx(expected, abs=1e-3)
        assert [len(e.top) for e in entries] == [len(e.top) for e in whole.logprobs]


def assert_sticky(session: Session) -> None:
    """All that works is refused until the cancel is cleared, and nothing changes."""
    before = session.tokens, session.unread
    for act in (
        lambda: session.append_tokens(session.unread or [1]),
        lambda: session.append_text("x"),
        lambda: session.append_embeddings(np.zeros((1, strand(session).width))),
        lambda: session.append_chat("x"),
        lambda: session.generate(GREEDY),
        lambda: session.stream(GREEDY),
    ):
        for _ in range(2):
            with pytest.raises(phyla.CancelledError, match="clear_cancel"):
                act()
    assert before == (session.tokens, session.unread)


def assert_busy(session: Session, match: str = "working") -> None:
    for act in (
        lambda: session.append_tokens([1]),
        lambda: session.append_text("x"),
        lambda: session.append_embeddings(np.zeros((1, strand(session).width))),
        lambda: session.append_chat("x"),
        lambda: session.generate(GREEDY),
        lambda: session.stream(GREEDY),
        lambda: session.fork(),
        lambda: session.reset(),
    ):
        with pytest.raises(phyla.BusyError, match=match):
            act()
