"""A pass through the model that fails leaves a session that can go on."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.core.engine.session.agreement import assert_alike, assert_as_before, assert_same
from tests.core.engine.session.sessions import (
    DRAWN,
    PROMPT,
    alone,
    begun,
    chunks,
    embeddings,
    running,
)

from phyla.engine.caches import FullCache
from phyla.testing import prompt_ids

if TYPE_CHECKING:
    from collections.abc import Iterator

    import mlx.core as mx

    import phyla


@contextmanager
def failing(at: int) -> Iterator[None]:
    """The attention of one layer fails, when others have their keys already."""
    attend = FullCache.attend
    calls = 0

    def attending(self: FullCache, *arrays: mx.array, **more: Any) -> mx.array:
        nonlocal calls
        calls += 1
        if calls == at:
            raise RuntimeError("a layer's own trouble")
        return attend(self, *arrays, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FullCache, "attend", attending)
        yield


@pytest.mark.parametrize("at", [1, 2, 5])
def test_an_append_that_fails_leaves_the_session_as_it_was(every: phyla.Engine, at: int) -> None:
    whole = alone(every, [*PROMPT, 1, 2, 3], DRAWN)
    with chunks(every, 3), begun(every) as session:
        first = session.generate({**DRAWN, "seed": 1, "max_tokens": 3})
        before = session.tokens
        for act in (
            lambda: session.append_tokens(prompt_ids(20)),
            lambda: session.append_chat("Well?"),
            lambda: session.append_embeddings(embeddings(every, prompt_ids(20))),
        ):
            with failing(at), pytest.raises(RuntimeError, match="own trouble"):
                act()
            assert_as_before(session, 33, before)
        goes_on = session.generate({**DRAWN, "seed": None, "max_tokens": 2})
        assert_alike([first, goes_on], alone(every, PROMPT, {**DRAWN, "seed": 1, "max_tokens": 5}))
        session.reset()
        with failing(at), pytest.raises(RuntimeError, match="own trouble"):
            session.append_tokens(PROMPT)
        assert_as_before(session, 0, ())
        session.append_tokens([*PROMPT, 1, 2, 3])
        assert_same(session.generate(DRAWN), whole)


@pytest.mark.parametrize("at", [1, 2, 6])
def test_a_reply_that_fails_keeps_what_was_said(every: phyla.Engine, at: int, ahead: bool) -> None:
    whole = alone(every, PROMPT, DRAWN)
    with running(every, ahead=ahead), begun(every) as session:
        with failing(at), pytest.raises(RuntimeError, match="own trouble"):
            session.generate(DRAWN)
        count = session.position - 30
        assert session.tokens == (*PROMPT, *whole.tokens[:count])
        with session.fork() as fork:
            rest = fork.generate({**DRAWN, "max_tokens": 8 - count})
            assert rest.tokens == whole.tokens[count:]
        session.append_tokens([1])
        ids = [*PROMPT, *whole.tokens[:count], 1]
        assert_same(session.generate(DRAWN), alone(every, ids, DRAWN))
