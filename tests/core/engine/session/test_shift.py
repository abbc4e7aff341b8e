"""A session that shifts its context is like one that began with what is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.engine.session.agreement import assert_alike
from tests.core.engine.session.sessions import (
    ASCII,
    DRAWN,
    GREEDY,
    LLAMA,
    OPTIONS,
    PROMPT,
    alone,
    begun,
    make,
    running,
    running_bytes,
    strand,
)

import phyla
from phyla.engine.engine import load
from phyla.testing import assert_close, prompt_ids, write_checkpoint

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def one_layer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[phyla.Engine]:
    """Of one layer, keys depend on nothing but their token and place."""
    folder = tmp_path_factory.mktemp("one") / "tiny"
    with load(write_checkpoint(folder, {**LLAMA, "num_hidden_layers": 1})) as engine:
        yield engine


@given(
    keep=st.integers(0, 14),
    prompt=st.integers(1, 16),
    counts=st.lists(st.integers(1, 14), min_size=2, max_size=4),
)
@settings(max_examples=8)
def test_a_shifted_session_is_like_one_that_began_with_what_is_left(
    one_layer: phyla.Engine, keep: int, prompt: int, counts: list[int]
) -> None:
    ids = prompt_ids(prompt)
    with one_layer.session(max_seq_len=16, n_keep=keep) as session:
        session.append_tokens(ids)
        said: list[int] = list(ids)
        for count in counts:
            reply = session.generate({**GREEDY, "max_tokens": count})
            assert (len(reply.tokens), reply.finish_reason) == (count, "length")
            said += reply.tokens
            assert session.position <= 16
            assert session.tokens[:keep] == tuple(said[:keep])
            tail = session.tokens[keep:]
            assert tail == tuple(said[len(said) - len(tail) :])
            with session.fork() as fork, begun(one_layer, session.tokens) as fresh:
                last = {**GREEDY, "max_tokens": 1, "top_logprobs": 20}
                found, expected = fork.generate(last), fresh.generate(last)
                assert found.logprobs is not None
                assert expected.logprobs is not None
                assert_close(
                    [value for _, value in found.logprobs[0].top],
                    [value for _, value in expected.logprobs[0].top],
                    tolerance=1e-3,
                )


@pytest.mark.parametrize("name", ["attention", "window"])
def test_a_session_that_shifts_goes_on_and_on_in_bounded_memory(
    name: str, tmp_path: Path, ahead: bool
) -> None:
    with make(tmp_path / "tiny", name) as engine, running(engine, ahead=ahead):
        options = {**DRAWN, **ASCII, **OPTIONS["penalties"]}
        most = engine.machine.loaded.runtime.nbytes(40)
        with begun(engine, max_seq_len=40, n_keep=5) as session:
            replies = []
            for count in (30, 7, 40, 1, 22):
                replies.append(session.generate({**options, "max_tokens": count}))
                assert session.position <= 40
                assert session.tokens[:5] == tuple(PROMPT[:5])
                assert strand(session).nbytes <= most
                assert running_bytes(engine) <= most
            said = [token for reply in replies for token in reply.tokens]
            assert len(said) == 100
            tail = session.tokens[5:]
            assert list(tail) == said[-len(tail) :]
        with begun(engine, max_seq_len=40, n_keep=5) as other:
            whole = other.generate({**options, "max_tokens": 100})
            assert_alike(replies, whole)
            assert other.tokens == (*PROMPT[:5], *tail)


def test_before_it_is_full_a_shifting_session_is_like_any_other(plain: phyla.Engine) -> None:
    whole = alone(plain, PROMPT, {**DRAWN, "max_tokens": 9})
    with begun(plain, max_seq_len=40, n_keep=5) as session:
        assert session.generate({**DRAWN, "max_tokens": 9}).tokens == whole.tokens
        assert session.tokens == (*PROMPT, *whole.tokens)


def test_a_shifting_session_that_is_full_goes_on(plain: phyla.Engine) -> None:
    with begun(plain, prompt_ids(40), max_seq_len=40, n_keep=3) as session:
        with pytest.raises(phyla.ContextOverflowError) as caught:
            session.append_tokens([1])  # what is appended never pushes anything out
        assert caught.value.excess == 1
        assert session.generate(GREEDY).finish_reason == "length"
        assert session.position < 40
        assert session.append_tokens([1]) == session.position


def test_n_keep_warns_where_it_can_do_nothing(every: phyla.Engine) -> None:
    if "Mixed" not in type(every._machine.loaded.runtime.model).__name__:
        every.session(max_seq_len=40, n_keep=4).close()
        return
    with pytest.warns(UserWarning, match="n_keep"):
        session = every.session(max_seq_len=32, n_keep=4)
    session.append_tokens(PROMPT)
    assert session.generate({**GREEDY, "max_tokens": 9}).finish_reason == "context_full"
    session.close()
