"""Whatever is wrong in a call is said, and changes nothing."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
import pytest
from tests.core.engine.session.agreement import assert_alike, assert_as_before, assert_same
from tests.core.engine.session.sessions import (
    ASCII,
    DRAWN,
    GREEDY,
    PROMPT,
    alone,
    begun,
    running,
    running_bytes,
)

import phyla

if TYPE_CHECKING:
    from collections.abc import Callable

    from phyla.engine.session import Session


WRONG: dict[str, tuple[Callable[[Session], object], type[phyla.PhylaError]]] = {
    "no tokens": (lambda s: s.append_tokens([]), phyla.EmptyInputError),
    "no text": (lambda s: s.append_text(""), phyla.EmptyInputError),
    "no messages": (lambda s: s.append_chat([]), phyla.EmptyInputError),
    "no embeddings": (lambda s: s.append_embeddings(np.zeros((0, 32))), phyla.RequestError),
    "a high id": (lambda s: s.append_tokens([1, 288]), phyla.RequestError),
    "a negative id": (lambda s: s.append_tokens([-1]), phyla.RequestError),
    "a float id": (lambda s: s.append_tokens([1.5]), phyla.RequestError),  # pyright: ignore[reportArgumentType]
    "a boolean id": (lambda s: s.append_tokens([True]), phyla.RequestError),
    "ids of text": (lambda s: s.append_tokens("ab"), phyla.RequestError),  # pyright: ignore[reportArgumentType]
    "an id alone": (lambda s: s.append_tokens(3), phyla.RequestError),  # pyright: ignore[reportArgumentType]
    "bytes": (lambda s: s.append_text(b"a"), phyla.RequestError),  # pyright: ignore[reportArgumentType]
    "half a character": (lambda s: s.append_text("\ud800"), phyla.RequestError),
    "special tokens, maybe": (
        lambda s: s.append_text("a", add_special_tokens="no"),  # pyright: ignore[reportArgumentType]
        phyla.RequestError,
    ),
    "a vector": (lambda s: s.append_embeddings(np.zeros(32)), phyla.RequestError),
    "a batch": (lambda s: s.append_embeddings(np.zeros((1, 1, 32))), phyla.RequestError),
    "another width": (lambda s: s.append_embeddings(mx.zeros((2, 31))), phyla.RequestError),
    "ragged": (lambda s: s.append_embeddings([[1.0], [1.0, 2.0]]), phyla.RequestError),  # pyright: ignore[reportArgumentType]
    "words": (lambda s: s.append_embeddings([["a"] * 32]), phyla.RequestError),  # pyright: ignore[reportArgumentType]
    "nothing": (lambda s: s.append_embeddings(None), phyla.RequestError),  # pyright: ignore[reportArgumentType]
    "complex": (lambda s: s.append_embeddings(np.zeros((1, 32), complex)), phyla.RequestError),
    "complex in mlx": (
        lambda s: s.append_embeddings(mx.zeros((1, 32), mx.complex64)), phyla.RequestError
    ),
    "not a number": (
        lambda s: s.append_embeddings(np.full((1, 32), math.nan)), phyla.RequestError
    ),
    "a message of another role": (
        lambda s: s.append_chat([{"role": "oracle", "content": ""}]), phyla.RequestError
    ),
    "a number for messages": (lambda s: s.append_chat(3), phyla.RequestError),  # pyright: ignore[reportArgumentType]
    "a tool without a name": (lambda s: s.append_chat("a", tools=[{}]), phyla.RequestError),
    "an effort": (lambda s: s.append_chat("a", thinking="enormous"), phyla.RequestError),
    "an image": (lambda s: s.append_image("cat.png"), phyla.UnsupportedModalityError),
    "sound": (lambda s: s.append_audio(b""), phyla.UnsupportedModalityError),
    "a film": (lambda s: s.append_video(b""), phyla.UnsupportedModalityError),
    "an unknown option": (lambda s: s.generate({"temprature": 1}), phyla.RequestError),
    "a negative temperature": (lambda s: s.generate({"temperature": -1}), phyla.RequestError),
    "no tokens wanted": (lambda s: s.stream({"max_tokens": 0}), phyla.RequestError),
    "a bias beyond": (lambda s: s.stream({"logit_bias": {400: 1.0}}), phyla.RequestError),
    "options of another kind": (lambda s: s.generate(4), phyla.RequestError),  # pyright: ignore[reportArgumentType]
    "flush": (lambda s: s.generate(flush_tokens=0), phyla.RequestError),
    "flush time": (lambda s: s.stream(flush_seconds=-1), phyla.RequestError),
    "a sink that is none": (lambda s: s.generate(sink=3), phyla.RequestError),  # pyright: ignore[reportArgumentType]
}  # fmt: skip


def test_whatever_is_wrong_is_said_and_changes_nothing(plain: phyla.Engine, ahead: bool) -> None:
    options = {**DRAWN, **ASCII, "logprobs": True}
    whole = alone(plain, PROMPT, {**options, "max_tokens": 8 + len(WRONG)})
    with running(plain, ahead=ahead), begun(plain) as session:
        parts = [session.generate(options)]
        for name, (act, kind) in WRONG.items():
            before = session.tokens
            with pytest.raises(phyla.PhylaError) as caught:
                act(session)
            assert isinstance(caught.value, kind), name
            assert caught.value.fault == "request", name
            assert_as_before(session, len(before), before)
            parts.append(session.generate({**options, "seed": None, "max_tokens": 1}))
        assert_alike(parts, whole)


def test_an_empty_session_has_nothing_to_go_on_from(plain: phyla.Engine) -> None:
    with plain.session() as session:
        for act in (session.generate, session.stream):
            with pytest.raises(phyla.EmptyInputError):
                act(GREEDY)
        session.append_tokens(PROMPT)
        assert_same(session.generate(DRAWN), alone(plain, PROMPT, DRAWN))


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_seq_len": 0}, {"max_seq_len": 513}, {"max_seq_len": True}, {"max_seq_len": "9"},
        {"n_keep": -1}, {"n_keep": 511}, {"n_keep": True}, {"n_keep": 1.0},
        {"n_keep": 9, "max_seq_len": 10}, {"options": {"top_p": 2}},
        {"options": {"stop_token_ids": (400,)}}, {"options": 3},
    ],
)  # fmt: skip
def test_a_session_cannot_be_made_of_anything(plain: phyla.Engine, wrong: Any) -> None:
    before = running_bytes(plain)
    with pytest.raises(phyla.RequestError):
        plain.session(**wrong)
    assert running_bytes(plain) == before


def test_a_sessions_own_options_are_its_defaults(plain: phyla.Engine) -> None:
    options = {**DRAWN, **ASCII}
    whole = alone(plain, PROMPT, options)
    with begun(plain, options=options) as session:
        first = session.generate({"max_tokens": 3})
        assert_alike([first, session.generate({"max_tokens": 5})], whole)
