"""A stream's handle: iterated, awaited, cancelled, dropped, or waited for."""

from __future__ import annotations

import asyncio
import gc
import threading

import pytest

from phyla.engine.stream import Channel, Stream
from phyla.errors import CancelledError, MediaError
from phyla.events import Event, Finished, Reply, TextDelta, Timings, Usage

REPLY = Reply(text="ab", finish_reason="stop", usage=Usage(), timings=Timings(), seed=1)
EVENTS: list[Event] = [TextDelta("a"), TextDelta("b"), Finished(REPLY)]


def filled() -> Channel:
    channel = Channel()
    for event in EVENTS:
        channel.put(event)
    channel.close()
    return channel


def test_iterating_gives_the_events_in_order() -> None:
    assert list(Stream(filled())) == EVENTS


def test_awaiting_gives_the_same_events() -> None:
    async def collect() -> list[Event]:
        return [event async for event in Stream(filled())]

    assert asyncio.run(collect()) == EVENTS


def test_an_async_reader_wakes_for_events_put_by_another_thread() -> None:
    channel = Channel()

    async def collect() -> list[Event]:
        feeder = threading.Thread(target=feed)
        feeder.start()
        events = [event async for event in Stream(channel)]
        feeder.join()
        return events

    def feed() -> None:
        for event in EVENTS:
            channel.put(event)
        channel.close()

    assert asyncio.run(collect()) == EVENTS


def test_the_result_is_the_reply_before_during_and_after_iteration() -> None:
    stream = Stream(filled())
    next(stream)
    assert stream.result() == REPLY
    assert stream.result() == REPLY
    assert list(stream) == EVENTS[1:]
    assert stream.result() == REPLY


def test_an_error_comes_after_the_events_before_it_and_again_when_asked_again() -> None:
    channel = Channel()
    channel.put(TextDelta("a"))
    channel.close(MediaError("bad", index=0))
    stream = Stream(channel)
    assert next(stream) == TextDelta("a")
    for _ in range(2):
        with pytest.raises(MediaError):
            next(stream)


def test_a_stream_that_ends_without_a_reply_says_so() -> None:
    channel = Channel()
    channel.close()
    with pytest.raises(CancelledError):
        Stream(channel).result()


def test_leaving_the_with_block_cancels() -> None:
    channel = filled()
    with Stream(channel):
        assert not channel.cancelled.is_set()
    assert channel.cancelled.is_set()


def test_dropping_the_handle_cancels() -> None:
    channel = filled()
    stream = Stream(channel)
    assert not channel.cancelled.is_set()
    del stream
    gc.collect()
    assert channel.cancelled.is_set()
