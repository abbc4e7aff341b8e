"""The tool calls of a reply: each block that holds some, as it is read, and all of them, numbered.

What a format's parser finds out about a block, with the block's own indices, becomes events with
the reply's. Knows no markers, and nothing of what stands around a block.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from typing_extensions import assert_never

from phyla.engine.spans import Span, SpanKind
from phyla.events import (
    ToolCallDelta,
    ToolCallError,
    ToolCallFailed,
    ToolCallFinished,
    ToolCallStarted,
)
from phyla.messages import ToolCall
from phyla.tools import ArgumentsDelta, CallFailed, CallParsed, CallStarted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from phyla.tools import BlockParser, CallEvent

CallSpanEvent: TypeAlias = ToolCallStarted | ToolCallDelta | ToolCallFinished | ToolCallFailed


class Calls:
    """The calls of one reply.

    Args:
        ids: what their ids begin with; the call's index follows.

    Attributes:
        finished: the calls that were read whole.
        errors: those that could not be read.
        cut: the output ended inside one.
        count: how many began.
    """

    def __init__(self, ids: str) -> None:
        self._ids = ids
        self.finished: list[ToolCall] = []
        self.errors: list[ToolCallError] = []
        self.cut = False
        self.count = 0
        self._streamed: dict[int, bool] = {}  # calls that began, and whether arguments came

    def begin(self, index: int, name: str) -> list[CallSpanEvent]:
        """A call's name is known. It is told once."""
        if index in self._streamed:
            return []
        self._streamed[index] = False
        self.count = max(self.count, index + 1)
        return [ToolCallStarted(index, self._id(index), name)]

    def go_on(self, index: int, arguments: str) -> list[CallSpanEvent]:
        """More of a call's arguments came, as JSON."""
        self._streamed[index] = True
        return [ToolCallDelta(index, arguments)]

    def end(self, index: int, parsed: CallParsed) -> list[CallSpanEvent]:
        """A call is complete."""
        events = self.begin(index, parsed.name)
        if not self._streamed[index]:
            arguments = json.dumps(parsed.arguments, ensure_ascii=False)
            events.append(ToolCallDelta(index, arguments))
        call = ToolCall(
            id=self._id(index),
            name=parsed.name,
            arguments=parsed.arguments,
            raw=parsed.raw,
            notes=parsed.notes,
        )
        self.finished.append(call)
        return [*events, ToolCallFinished(index, call)]

    def fail(self, index: int | None, failed: CallFailed) -> list[CallSpanEvent]:
        """What should have been a call cannot be read."""
        error = ToolCallError(raw=failed.raw, reason=failed.reason, incomplete=failed.incomplete)
        self.errors.append(error)
        self.cut = self.cut or failed.incomplete
        return [ToolCallFailed(index, error)]

    def _id(self, index: int) -> str:
        return f"{self._ids}_{index}"


class Block:
    """A block of tool calls that is being read.

    Args:
        parser: reads it.
        opens: what the format's blocks open with.
        calls: the reply's.

    Attributes:
        called: a call began in it.
    """

    def __init__(self, parser: BlockParser, opens: tuple[str, ...], calls: Calls) -> None:
        self._parser = parser
        self._opens = opens
        self._calls = calls
        self._base = calls.count  # the reply's index of the block's first call
        self._length = 0  # of what the parser was given
        self._pieces: list[str] = []
        self._marks: list[tuple[int, str]] = []  # the places of markers among them
        self._spans: list[Span] = []  # what the parser has decided on
        self.called = False

    @property
    def over(self) -> bool:
        """Whether the parser has found its end."""
        return self._parser.rest is not None

    def feed(self, piece: str, *, is_mark: bool = False) -> list[CallSpanEvent]:
        """Read on; return what became certain."""
        if is_mark:
            self._marks.append((self._length, piece))
        self._pieces.append(piece)
        self._length += len(piece)
        return self._told(self._parser.feed(piece))

    def finish(self, *, incomplete: bool) -> list[CallSpanEvent]:
        """Nothing more comes; `incomplete` says whether that cuts off what is open."""
        return self._told(
            replace(event, incomplete=False)
            if isinstance(event, CallFailed) and event.incomplete and not incomplete
            else event
            for event in self._parser.finish()
        )

    @property
    def spans(self) -> list[Span]:
        """What was read, up to its end."""
        fed = "".join(self._pieces)
        used = fed[: len(fed) - len(self._parser.rest or "")]
        if "".join(span.raw for span in self._spans) == used:
            return self._spans
        # A format that miscounts must not make the record wrong.
        kind: SpanKind = "call" if self.called else "error"
        return [Span(kind, used)]

    @property
    def rest(self) -> list[tuple[str, bool]]:
        """What was given to it behind its end: text, and markers (True), in order."""
        rest = self._parser.rest or ""
        at = start = self._length - len(rest)
        pieces: list[tuple[str, bool]] = []
        for place, marker in self._marks:
            if place >= start:
                pieces += [(rest[at - start : place - start], False), (marker, True)]
                at = place + len(marker)
        pieces.append((rest[at - start :], False))
        return [piece for piece in pieces if piece[0]]

    def _told(self, found: Iterable[CallEvent]) -> list[CallSpanEvent]:
        return [told for event in found for told in self._meet(event)]

    def _meet(self, event: CallEvent) -> list[CallSpanEvent]:
        index = None if event.index is None else self._base + event.index
        if isinstance(event, CallFailed):
            if self._is_prose(event):
                self._spans.append(Span("text", event.raw))
                return []
            self._spans.append(Span("error", event.raw))
            return self._calls.fail(index, event)
        assert index is not None, "only a failure may come without a call"
        match event:
            case CallStarted(name=name):
                self.called = True
                return self._calls.begin(index, name)
            case ArgumentsDelta(json=piece):
                return self._calls.go_on(index, piece)
            case CallParsed():
                self.called = True
                self._spans.append(Span("call", event.raw))
                return self._calls.end(index, event)
            case _:
                assert_never(event)

    def _is_prose(self, failed: CallFailed) -> bool:
        return failed.prose or (
            failed.index is None and not failed.incomplete and failed.raw.strip() in self._opens
        )
