"""Many sessions at once, whatever is done to them, are each as if alone."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.engine.session.agreement import assert_same
from tests.core.engine.session.sessions import (
    DRAWN,
    OPTIONS,
    PROMPT,
    alone,
    begun,
    chunks,
    embeddings,
    held_up,
    on_feed,
    running,
)

import phyla
from phyla.testing import prompt_ids

if TYPE_CHECKING:
    from phyla.engine.session import Session


def test_sessions_and_chats_together_are_each_as_if_alone(every: phyla.Engine, ahead: bool) -> None:
    prompts = [prompt_ids(10 + 7 * seed, seed=seed) for seed in range(7)]
    wishes = [{**DRAWN, **OPTIONS[name], "seed": 3, "max_tokens": 5 + place}
              for place, name in enumerate(OPTIONS)]  # fmt: skip
    expected = [alone(every, ids, wish) for ids, wish in zip(prompts, wishes, strict=True)]
    with running(every, ahead=ahead), chunks(every, 8):
        sessions = [begun(every, ids) for ids in prompts[:4]]
        late = every.session()
        with held_up(every):
            streams = [
                session.stream(wish) for session, wish in zip(sessions, wishes, strict=False)
            ]
            streams += [
                every.stream(phyla.Prompt(ids=tuple(ids)), options=wish, prompt_cache=False)
                for ids, wish in zip(prompts[4:], wishes[4:], strict=True)
            ]
            thread = threading.Thread(target=lambda: late.append_tokens(PROMPT))
            thread.start()
        for stream, one in zip(streams, expected, strict=True):
            assert stream.result().tokens == one.tokens
        thread.join()
        assert_same(late.generate(DRAWN), alone(every, PROMPT, DRAWN))
        for session in (*sessions, late):
            session.close()


@given(data=st.data())
@settings(max_examples=12)
def test_whatever_was_done_to_a_session_its_tokens_tell_what_it_says(
    every: phyla.Engine, data: st.DataObject
) -> None:
    options = {**DRAWN, "seed": None}
    values = {0: prompt_ids(20), 1: prompt_ids(20, seed=1)}
    with chunks(every, 4):
        sessions = [every.session()]
        ids: dict[Session, list[int]] = {sessions[0]: []}
        for _ in range(data.draw(st.integers(1, 7))):
            session = data.draw(st.sampled_from(sessions))
            held = ids[session]
            match data.draw(st.sampled_from("aatteegfrc")):
                case "a":
                    new = values[data.draw(st.integers(0, 1))][: data.draw(st.integers(1, 20))]
                    session.append_tokens(new)
                    held += new
                case "t":
                    text = data.draw(st.text(min_size=1, max_size=6))
                    session.append_text(text)
                    held += list(text.encode())
                case "e":
                    new = values[1][: data.draw(st.integers(1, 9))]
                    session.append_embeddings(embeddings(every, new))
                    held += new
                case "g" if held:
                    wish = {**options, "max_tokens": data.draw(st.integers(1, 6))}
                    held += session.generate(wish).tokens
                case "f" if len(sessions) < 3:
                    other = session.fork()
                    sessions.append(other)
                    ids[other] = list(held)
                case "r":
                    session.reset()
                    held.clear()
                case "c":
                    stop = data.draw(st.integers(0, 5))
                    new = values[0]
                    with (
                        on_feed(lambda count, at=stop, s=session: count < at or s.cancel()),
                        suppress(phyla.CancelledError),
                    ):
                        session.append_tokens(new)
                    session.clear_cancel()
                    if session.unread:
                        session.append_tokens(session.unread)
                    held += new
                case _:
                    pass
            assert session.position == len(held)
        for session, held in ids.items():
            if held:
                session.append_tokens([7])
                assert session.generate(DRAWN).tokens == alone(every, [*held, 7], DRAWN).tokens
            session.close()
