"""Text that is handed out in larger pieces."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import phyla
from phyla.engine.flush import Flush
from phyla.events import Event, ReasoningDelta, TextDelta, TokenLogprob

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Clock:
    """Tells the time that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def told(flush: Flush, tokens: Sequence[Sequence[Event]]) -> Iterator[list[Event]]:
    """What is handed out with each token, and at the end."""
    for events in tokens:
        out = [given for event in events for given in flush.take(event)]
        yield [*out, *flush.token()]
    yield flush.flush()


def texts(events: Sequence[Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, TextDelta)]


def entry(token: int) -> TokenLogprob:
    return TokenLogprob(token=token, text="", logprob=-1.0)


def test_without_a_wish_each_token_is_handed_out_at_once() -> None:
    flush = Flush()
    assert flush.take(TextDelta("a")) == []
    assert flush.token() == [TextDelta("a")]
    assert flush.token() == []
    assert flush.flush() == []


def test_so_many_tokens_are_joined() -> None:
    pieces = list(told(Flush(tokens=3), [[TextDelta(letter)] for letter in "abcdefgh"]))
    assert [texts(piece) for piece in pieces] == [
        [], [], ["abc"], [], [], ["def"], [], [], ["gh"],
    ]  # fmt: skip


def test_tokens_count_whether_they_gave_text_or_not() -> None:
    flush = Flush(tokens=3)
    tokens: list[list[Event]] = [[TextDelta("a")], [], [], [], [TextDelta("b"), TextDelta("c")]]
    assert [texts(piece) for piece in told(flush, tokens)] == [[], [], ["a"], [], [], ["bc"]]


def test_time_is_looked_at_when_a_token_comes() -> None:
    clock = Clock()
    flush = Flush(tokens=100, seconds=0.5, clock=clock)
    flush.take(TextDelta("a"))
    assert flush.token() == []
    clock.now += 0.4
    flush.take(TextDelta("b"))
    assert flush.token() == []
    clock.now += 0.1
    flush.take(TextDelta("c"))
    assert flush.token() == [TextDelta("abc")]
    flush.take(TextDelta("d"))
    assert flush.token() == []  # counted from the last time on
    clock.now += 0.5
    assert flush.token() == [TextDelta("d")]


def test_no_time_at_all_hands_out_every_token() -> None:
    flush = Flush(tokens=100, seconds=0, clock=Clock())
    flush.take(TextDelta("a"))
    assert flush.token() == [TextDelta("a")]


def test_other_events_come_at_once_behind_the_text_before_them() -> None:
    flush = Flush(tokens=10)
    flush.take(TextDelta("a"))
    flush.token()
    flush.take(TextDelta("b"))
    thought = ReasoningDelta("hm")
    assert flush.take(thought) == [TextDelta("ab"), thought]
    assert flush.take(thought) == [thought]


def test_log_probabilities_stay_with_their_text() -> None:
    flush = Flush(tokens=2)
    flush.take(TextDelta("a", (entry(1),)))
    flush.token()
    flush.take(TextDelta("", (entry(2), entry(3))))
    assert flush.token() == [TextDelta("a", (entry(1), entry(2), entry(3)))]


EVENTS = st.one_of(
    st.builds(TextDelta, st.text(max_size=3), st.lists(st.builds(entry, st.integers(0, 9)))
              .map(tuple)),
    st.builds(ReasoningDelta, st.text(max_size=3)),
)  # fmt: skip


@given(
    st.lists(st.lists(EVENTS, max_size=3), max_size=12),
    st.integers(1, 5),
    st.none() | st.floats(0, 3),
    st.lists(st.floats(0, 2), min_size=12, max_size=12),
)
def test_nothing_is_lost_doubled_or_moved(
    tokens: list[list[Event]], count: int, seconds: float | None, waits: list[float]
) -> None:
    clock = Clock()
    flush = Flush(tokens=count, seconds=seconds, clock=clock)
    out: list[Event] = []
    for events, wait in zip(tokens, waits, strict=False):
        clock.now += wait
        for event in events:
            out += flush.take(event)
        out += flush.token()
    out += flush.flush()
    assert flat(out) == flat([event for events in tokens for event in events])
    assert entries(out) == entries([event for events in tokens for event in events])


def flat(events: Sequence[Event]) -> list[tuple[str, str]]:
    """Kinds and texts, neighbours of one kind joined."""
    joined: list[tuple[str, str]] = []
    for event in events:
        assert isinstance(event, TextDelta | ReasoningDelta)
        if not event.text:
            continue
        if joined and joined[-1][0] == event.kind:
            joined[-1] = (event.kind, joined[-1][1] + event.text)
        else:
            joined.append((event.kind, event.text))
    return joined


def entries(events: Sequence[Event]) -> list[TokenLogprob]:
    return [e for event in events if isinstance(event, TextDelta) for e in event.logprobs]


@pytest.mark.parametrize("wrong", [0, -1, 1.0, True, None, "2"])
def test_a_number_of_tokens_that_is_none_is_refused(wrong: Any) -> None:
    with pytest.raises(phyla.RequestError, match="flush_tokens") as caught:
        Flush(tokens=wrong)
    assert (caught.value.field, caught.value.found) == ("flush_tokens", wrong)


@pytest.mark.parametrize("wrong", [-0.1, math.nan, True, "1", [1]])
def test_a_time_that_is_none_is_refused(wrong: Any) -> None:
    with pytest.raises(phyla.RequestError, match="flush_seconds") as caught:
        Flush(seconds=wrong)
    assert caught.value.field == "flush_seconds"
