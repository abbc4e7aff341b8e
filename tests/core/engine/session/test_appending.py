"""What is appended to a session, as tokens, text or embeddings, is what the model goes on from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
import pytest
from tests.core.engine.session.agreement import assert_alike, assert_same
from tests.core.engine.session.sessions import (
    ASCII,
    DRAWN,
    GREEDY,
    OPTIONS,
    PROMPT,
    alone,
    chunks,
    embeddings,
    running,
)

if TYPE_CHECKING:
    import phyla


def test_positions_and_tokens_follow_what_is_appended(plain: phyla.Engine) -> None:
    with plain.session() as session:
        assert (session.position, session.tokens, session.unread) == (0, (), ())
        assert session.max_seq_len == plain.context == 512
        assert session.append_text("abc") == 3
        assert session.append_tokens([1, 2]) == 5
        assert session.append_tokens(np.array([3])) == 6  # pyright: ignore[reportArgumentType]
        assert session.append_embeddings(np.zeros((2, 32))) == 8
        assert session.tokens == (97, 98, 99, 1, 2, 3, -1, -1)
        reply = session.generate(GREEDY)
        assert session.position == 16
        assert session.tokens[8:] == reply.tokens
        assert reply.usage.prompt_tokens == 8
        assert reply.usage.completion_tokens == 8


def test_a_tokenizers_own_tokens_come_at_the_beginning_only(
    plain: phyla.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = plain.tokenizer
    asked: list[bool] = []
    encode = type(tokenizer).encode

    def encoding(self: Any, text: str, *, add_special_tokens: bool) -> list[int]:
        asked.append(add_special_tokens)
        return encode(self, text, add_special_tokens=add_special_tokens)

    monkeypatch.setattr(type(tokenizer), "encode", encoding)
    with plain.session() as session:
        session.append_text("a")
        session.append_text("b")
        session.append_text("c", add_special_tokens=True)
        session.append_text("d", add_special_tokens=False)
    assert asked == [True, False, True, False]


@pytest.mark.parametrize("name", ["greedy", "penalties", "bias"])
def test_a_session_says_what_the_engine_says(every: phyla.Engine, name: str, ahead: bool) -> None:
    options = {**OPTIONS[name], **ASCII, "seed": 5, "max_tokens": 12, "top_logprobs": 2}
    whole = alone(every, PROMPT, options)
    with running(every, ahead=ahead), every.session() as session:
        session.append_tokens(PROMPT[:1])
        session.append_tokens(PROMPT[1:17])
        session.append_tokens(PROMPT[17:])
        reply = session.generate(options)
    assert_same(reply, whole)


def test_embeddings_are_the_tokens_they_stand_for(every: phyla.Engine, ahead: bool) -> None:
    options = {**DRAWN, **ASCII, "logprobs": True}
    whole = alone(every, PROMPT, options)
    values = embeddings(every, PROMPT)
    for start, stop in ((0, 20), (1, 29), (13, 30), (29, 30)):
        with running(every, ahead=ahead), chunks(every, 7), every.session() as session:
            if start:
                session.append_tokens(PROMPT[:start])
            assert session.append_embeddings(values[start:stop]) == stop
            if stop < len(PROMPT):
                session.append_tokens(PROMPT[stop:])
            assert session.position == len(PROMPT)
            assert_same(session.generate(options), whole)


def test_a_reply_may_follow_embeddings_at_once(every: phyla.Engine, ahead: bool) -> None:
    whole = alone(every, PROMPT, DRAWN)
    values = embeddings(every, PROMPT)
    with running(every, ahead=ahead), every.session() as session:
        session.append_embeddings(values.tolist())
        first = session.generate({**DRAWN, "max_tokens": 3})
        second = session.generate({**DRAWN, "max_tokens": 5})
        assert_alike([first, second], whole)
        assert session.tokens == (*[-1] * len(PROMPT), *whole.tokens)
    with every.session() as session:
        session.append_embeddings(mx.array(values).astype(mx.float32))
        assert_same(session.generate(DRAWN), whole)


def test_penalties_see_no_token_where_there_were_embeddings(plain: phyla.Engine) -> None:
    options = {**GREEDY, "repetition_penalty": 50.0, "penalty_window": 40}
    with plain.session() as session:
        session.append_embeddings(embeddings(plain, PROMPT))
        session.append_tokens([10])
        reply = session.generate(options)
    whole = alone(plain, [*PROMPT, 10], {**GREEDY, "max_tokens": 1})
    # Nothing that was embedded is penalized, so the first token is what it would be without.
    assert reply.tokens[0] == whole.tokens[0] or whole.tokens[0] == 10
