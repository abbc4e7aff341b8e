"""Turns a format's parser, written as a generator over a cursor, into a `BlockParser`.

`CallWriter` gathers what a parser finds out and turns it into events. Knows no format.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeAlias

from phyla.tools.cursor import Cursor, Need
from phyla.tools.format import ArgumentsDelta, CallEvent, CallFailed, CallParsed, CallStarted

CUT = "the output ended inside the call"


class CallError(ValueError):
    """What is being read is no call; `cut` if it merely ended too early."""

    def __init__(self, reason: str, *, cut: bool = False) -> None:
        self.reason, self.cut = reason, cut
        super().__init__(reason)


class NotACall(CallError):
    """The opening marker was ordinary text, for the given reason."""


class CallWriter:
    """Collects one call after the other: its name, its arguments as JSON text, its outcome."""

    def __init__(self) -> None:
        self._events: list[CallEvent] = []
        self._index = 0
        self._name: str | None = None
        self._json: list[str] = []
        self._sent = 0  # how many parts of `_json` are in events
        self._notes: dict[str, None] = {}

    @property
    def announced(self) -> bool:
        """Whether the current call's name is known."""
        return self._name is not None

    def announce(self, name: str) -> None:
        """Say the current call's name."""
        self._name = name
        self._events.append(CallStarted(self._index, name))

    def write(self, text: str) -> None:
        """Add to the current call's arguments, as JSON text; it may come before the name."""
        self._json.append(text)

    def note(self, note: str) -> None:
        """Add a note to the current call, once."""
        self._notes[note] = None

    def parsed(self, raw: str) -> None:
        """The current call is complete; what was written is a JSON object."""
        assert self._name is not None, "a call is announced before it is complete"
        self._flush()
        arguments = json.loads("".join(self._json))
        notes = tuple(self._notes)
        self._events.append(CallParsed(self._index, self._name, arguments, raw, notes))
        self._next()

    def failed(self, raw: str, error: CallError) -> None:
        """The current call cannot be read; `raw` is its text."""
        self._flush()
        self._events.append(
            CallFailed(
                self._index if self.announced else None,
                raw,
                error.reason,
                incomplete=error.cut,
                prose=isinstance(error, NotACall),
            )
        )
        self._next()

    def take(self) -> list[CallEvent]:
        """The events since the last call of `take`."""
        self._flush()
        events, self._events = self._events, []
        return events

    def _flush(self) -> None:
        if self.announced and self._sent < len(self._json):
            text = "".join(self._json[self._sent :])
            self._sent = len(self._json)
            if text:
                self._events.append(ArgumentsDelta(self._index, text))

    def _next(self) -> None:
        self._index += self.announced
        self._name, self._json, self._sent, self._notes = None, [], 0, {}


BlockReader: TypeAlias = Callable[[Cursor, CallWriter], Need[None]]


class StreamedBlock:
    """A `BlockParser` made of a reader: a generator that reads one block from the cursor.

    What the reader has not read when it returns is the block's `rest`.
    """

    def __init__(self, read: BlockReader) -> None:
        self._cursor = Cursor()
        self._calls = CallWriter()
        self._reader = read(self._cursor, self._calls)
        self._rest: str | None = None

    @property
    def rest(self) -> str | None:
        """None while the block is open; then the text after it."""
        return self._rest

    def feed(self, text: str) -> list[CallEvent]:
        """Take more text; return what became certain."""
        if self._rest is not None:
            self._rest += text
            return []
        self._cursor.feed(text)
        return self._step()

    def finish(self) -> list[CallEvent]:
        """Say that the output ended; return what that decides."""
        if self._rest is not None:
            return []
        self._cursor.end()
        return self._step()

    def _step(self) -> list[CallEvent]:
        try:
            next(self._reader)
        except StopIteration:
            self._rest = self._cursor.unread
        return self._calls.take()
