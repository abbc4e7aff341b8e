"""How a session's text is handed out: to a sink, and in pieces."""

from __future__ import annotations

import pytest
from tests.core.engine.session.sessions import ASCII, DRAWN, PROMPT, alone, begun
from tests.core.engine.session.talking import END, THOUGHT, Talking

import phyla


def test_a_sink_sees_everything_and_may_fail(plain: phyla.Engine) -> None:
    with begun(plain) as session:
        events: list[phyla.Event] = []
        reply = session.generate({**DRAWN, **ASCII}, sink=events.append)
        assert "".join(e.text for e in events if isinstance(e, phyla.TextDelta)) == reply.text
        last = events[-1]
        assert isinstance(last, phyla.Finished)
        assert last.reply == reply

        def fail(event: phyla.Event) -> None:
            raise KeyError("its own trouble")

        with pytest.raises(KeyError):
            session.generate({**DRAWN, **ASCII, "max_tokens": None}, sink=fail)
        assert session.position > 38
        session.reset()  # it works no more


def test_text_is_handed_out_in_pieces_of_so_many_tokens(plain: phyla.Engine) -> None:
    options = {**DRAWN, **ASCII, "max_tokens": 10, "logprobs": True}
    whole = alone(plain, PROMPT, options)
    with begun(plain) as session:
        events = list(session.stream(options, flush_tokens=4))
    pieces = [event for event in events if isinstance(event, phyla.TextDelta)]
    assert [piece.text for piece in pieces] == [whole.text[:4], whole.text[4:8], whole.text[8:]]
    assert [len(piece.logprobs) for piece in pieces] == [4, 4, 2]
    assert events[-1].kind == "finished"


def test_text_is_handed_out_after_some_time(
    plain: phyla.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from phyla.engine import flush

    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 0.25  # asked once with each token, and once when something is handed out
        return now

    monkeypatch.setattr(flush.Flush.__init__, "__kwdefaults__",
                        {"tokens": 1, "seconds": None, "clock": clock})  # fmt: skip
    options = {**DRAWN, **ASCII, "max_tokens": 10}
    whole = alone(plain, PROMPT, options)
    with begun(plain) as session:
        events = list(session.stream(options, flush_tokens=100, flush_seconds=1.0))
    texts = [event.text for event in events if isinstance(event, phyla.TextDelta)]
    assert texts == [whole.text[:4], whole.text[4:8], whole.text[8:]]


def test_reasoning_is_not_withheld_for_text(talk: Talking) -> None:
    talk.session.append_chat("Hi")
    talk.prepare(THOUGHT + END)
    events = list(talk.session.stream({"temperature": 0}, flush_tokens=1000))
    kinds = [event.kind for event in events]
    assert kinds.count("reasoning") > 3
    assert kinds[-2:] == ["text", "finished"]
    assert kinds.count("text") == 1
