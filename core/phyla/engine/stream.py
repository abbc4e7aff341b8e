"""The handle of a reply that is being made: iterate it, await it, cancel it, or wait for its end."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from typing import TYPE_CHECKING

from phyla.errors import CancelledError
from phyla.events import Event, Finished, Reply

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from types import TracebackType

    from typing_extensions import Self


class Channel:
    """Where the engine's thread leaves events for whoever holds the stream."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        lock = threading.RLock()
        self._ready = threading.Condition(lock)
        # Of the same lock: who waits for the end is not woken for each token.
        self._ended = threading.Condition(lock)
        self._wakers: set[Callable[[], object]] = set()
        self._closed = False
        self._unread = False
        self._error: BaseException | None = None
        self.reply: Reply | None = None
        self.cancelled = threading.Event()

    def put(self, event: Event) -> None:
        """Add an event."""
        with self._ready:
            if isinstance(event, Finished):
                self.reply = event.reply
            elif self._unread:
                return
            self._events.append(event)
            self._notify()

    def close(self, error: BaseException | None = None) -> None:
        """No event will follow; `error` is raised to the reader after those already there."""
        with self._ready:
            self._closed, self._error = True, error
            self._ended.notify_all()
            self._notify()

    def discard(self) -> None:
        """The reader wants nothing more but the end."""
        with self._ready:
            self._unread = True
            ended = [event for event in self._events if isinstance(event, Finished)]
            self._events = deque(ended)

    def take(self) -> Event | None:
        """The next event, waiting for it; None at the end."""
        with self._ready:
            while not self._events and not self._closed:
                self._ready.wait()
            return self._pop()

    def wait(self) -> Reply | None:
        """The reply, once no event will follow; takes none from who reads them."""
        with self._ready:
            while not self._closed:
                self._ended.wait()
            if self._error is not None:
                raise self._error
            return self.reply

    async def take_async(self) -> Event | None:
        """The next event, without blocking the event loop; None at the end."""
        loop = asyncio.get_running_loop()
        arrived = asyncio.Event()

        def wake() -> None:
            # The loop may have ended, and its reader with it, while the reply was made.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(arrived.set)

        try:
            while True:
                arrived.clear()
                with self._ready:
                    if self._events or self._closed:
                        return self._pop()
                    self._wakers.add(wake)
                await arrived.wait()
        finally:
            with self._ready:
                self._wakers.discard(wake)

    def _pop(self) -> Event | None:
        if self._events:
            return self._events.popleft()
        if self._error is not None:
            raise self._error
        return None

    def _notify(self) -> None:
        self._ready.notify_all()
        wakers, self._wakers = self._wakers, set()
        for wake in wakers:
            wake()


class Stream:
    """A reply in the making.

    Iterate it (`for` or `async for`) for its events; the last one is `Finished`. `result()` waits
    for the end. Leaving a `with` or `async with` block, closing the handle or dropping it cancels
    what is left.

    Args:
        channel: where the events come from.
        owner: what makes them; kept alive for as long as the handle is.
    """

    def __init__(self, channel: Channel, owner: object = None) -> None:
        self._channel = channel
        self._owner = owner

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        event = self._channel.take()
        if event is None:
            raise StopIteration
        return event

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        event = await self._channel.take_async()
        if event is None:
            raise StopAsyncIteration
        return event

    def cancel(self) -> None:
        """Ask for an early end; the reply so far arrives with finish reason `cancelled`."""
        self._channel.cancelled.set()

    def result(self) -> Reply:
        """Wait for the end and return the reply; the events stay for who iterates.

        Raises:
            CancelledError: the engine was closed before the request began.
            PhylaError: whatever went wrong on the way.
        """
        reply = self._channel.wait()
        if reply is None:
            raise CancelledError("The stream ended without a reply.")
        return reply

    def close(self) -> None:
        """Cancel what is left; of the events that were not read only `Finished` will come."""
        self._channel.discard()
        self.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self._channel.cancelled.set()
