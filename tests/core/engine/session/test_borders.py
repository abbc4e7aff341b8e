"""Reasoning, calls and budgets are read across the border of two calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.core.engine.session.agreement import assert_alike
from tests.core.engine.session.sessions import alone
from tests.core.engine.session.talking import END, THOUGHT, Talking

if TYPE_CHECKING:
    from collections.abc import Mapping

    import phyla
    from phyla.engine.session import Session


CALLED = '<think>\nA tool!\n</think>\n\n<tool_call>\n{"name": "f", "arguments": {"x": "<y>"}}\n</tool_call>'


@pytest.mark.parametrize("said", [THOUGHT, CALLED])
def test_reasoning_and_calls_are_read_across_any_border(talk: Talking, said: str) -> None:
    session, tools = talk.session, [{"name": "f", "parameters": {"type": "object"}}]
    session.append_chat("Hi", tools=tools)
    ids = talk.prepare(said + END)
    whole = alone(talk.scripted.engine, session.tokens, {"temperature": 0})
    assert whole.tokens == tuple(ids)
    whole = session_reply(session, {"temperature": 0, "seed": 1})
    for border in range(1, len(ids), 5):
        with session.fork() as fork:
            first = fork.generate({"temperature": 0, "max_tokens": border, "seed": 1})
            with fork.fork() as last:
                second = last.generate({"temperature": 0})
        assert first.finish_reason == "length"
        assert_alike([first, second], whole)
        assert [call.id for call in (*first.tool_calls, *second.tool_calls)] == [
            call.id for call in whole.tool_calls
        ]


def session_reply(session: Session, options: Mapping[str, Any]) -> phyla.Reply:
    with session.fork() as fork:
        return fork.generate(options)


@pytest.mark.parametrize("forked", [False, True])
def test_a_reasoning_budget_holds_across_any_border(talk: Talking, forked: bool) -> None:
    session = talk.session
    session.append_chat("Hi")
    talk.prepare("<think>\n" + "on and on " * 5)
    options = {"temperature": 0, "seed": 1, "reasoning_budget": 6, "max_tokens": 60}
    whole = session_reply(session, {**options, "max_tokens": 40})
    assert "</think>" in talk.scripted.engine.tokenizer.decode(whole.tokens, keep_special=True)
    for border in (1, 6, 7, 8, 9, 10, 11, 12, 13, 30):
        with session.fork() as fork:
            first = fork.generate({**options, "max_tokens": border})
            with fork.fork() if forked else fork as last:
                second = last.generate({**options, "max_tokens": 40 - border})
        assert (*first.tokens, *second.tokens) == whole.tokens, border
        assert first.text + second.text == whole.text
        assert first.reasoning + second.reasoning == whole.reasoning
