"""Splits a reply, as it streams, into text, reasoning and tool calls. Knows no tokenizer.

One automaton reads text and markers. It is in one of four states, and in each state it looks for
the patterns that mean something there:

- *text*: what opens reasoning, what opens a call, what closes something (stray), and stop texts;
- *reasoning*: what closes it, what opens it again, what opens a call;
- *title*: the word after an opening marker, where a dialect has one;
- *block*: nothing; the tool format reads all of it, and says where it ends.

A marker that is one token of the vocabulary arrives as a marker (`mark`) and is never looked for in
text, so that its spelling, typed out, is text. Other markers are looked for in the text (`feed`).

Withheld is only what may still belong to a marker: the proper prefix of a pattern, and the line
breaks before one, which templates write around markers and which are no part of what is said.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from typing_extensions import assert_never

from phyla.engine.spans import Record, Span, SpanKind
from phyla.engine.stops import PatternScanner
from phyla.events import (
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallError,
    ToolCallFailed,
    ToolCallFinished,
    ToolCallStarted,
)
from phyla.messages import ToolCall
from phyla.tools import ArgumentsDelta, CallFailed, CallParsed, CallStarted

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from phyla.events import FinishReason
    from phyla.family import Dialect
    from phyla.messages import Tool
    from phyla.tools import BlockParser, CallEvent

SpanEvent: TypeAlias = (
    TextDelta | ReasoningDelta | ToolCallStarted | ToolCallDelta | ToolCallFinished | ToolCallFailed
)

_Said: TypeAlias = Literal["text", "reasoning"]
_State: TypeAlias = Literal["text", "reasoning", "title", "block"]
_Role: TypeAlias = Literal["open", "close", "call", "bare", "end"]

# No name of a span is longer than this, so what is longer is no name.
_LONGEST_TITLE = 32


@dataclass
class _Block:
    """A block of tool calls that is being read.

    Attributes:
        parser: reads it.
        opens: what the format's blocks open with.
        inside: what was being said where the block began.
        before: the line breaks before it, which are its own if it holds a call.
        base: the reply's index of the block's first call.
        length: how many characters the parser was given.
        pieces: those characters.
        marks: the places of markers among them.
        spans: what the parser has decided on.
        called: whether a call began.
    """

    parser: BlockParser
    opens: tuple[str, ...]
    inside: _Said
    before: str
    base: int
    length: int
    pieces: list[str]
    marks: list[tuple[int, str]]
    spans: list[Span]
    called: bool = False


def markers(dialect: Dialect, *, calls: bool) -> dict[str, _Role]:
    """The markers of a dialect and what each does; without `calls`, only those of reasoning."""
    roles: dict[str, _Role] = {}
    if calls and dialect.tools is not None:
        if dialect.bare_tools is not None:
            roles |= dict.fromkeys(dialect.bare_tools.opens, "bare")
        roles |= dict.fromkeys(dialect.call_ends, "end")
        roles |= dict.fromkeys(dialect.tools.opens, "call")
    if dialect.reasoning is not None:
        roles |= {dialect.reasoning.open: "open", dialect.reasoning.close: "close"}
    return roles


class Classifier:
    """Reads one reply.

    Give it what the model says with `feed` and `mark`, in order, and call `finish` at the end. The
    events do not depend on how the text is cut, beyond the size of their deltas.

    Stop texts end the answer; they are looked for in the answer's text only, not in reasoning and
    not in tool calls, and not across a marker. The same holds for what it says after a call.
    """

    def __init__(
        self,
        dialect: Dialect,
        *,
        tools: Sequence[Tool] | None = None,
        stops: Sequence[str] = (),
        in_reasoning: bool = False,
        marks: Collection[str] = (),
        call_ids: str = "call",
        seed: str = "",
    ) -> None:
        """Start a reply.

        Args:
            dialect: how the model marks what it says.
            tools: what the model may call. With None no call is looked for, and the markers of
                calls are text; with an empty sequence calls are read without schemas.
            stops: texts that end the answer, none of them empty.
            in_reasoning: the prompt ends inside a span of reasoning.
            marks: the markers that arrive through `mark`, and are not looked for in text.
            call_ids: what the ids of calls begin with; the call's index follows.
            seed: the opening of a call that the prompt ends with, for a reply that must be a call.
                It is read as the reply's beginning, `raw` included.
        """
        reasoning = dialect.reasoning
        self._dialect = dialect
        self._tools = tools or ()
        self._format = None if tools is None else dialect.tools
        self._call_ids = call_ids
        self._roles = markers(dialect, calls=self._format is not None)
        self._stops = frozenset(stops)
        texts = [text for text in self._roles if text not in marks]
        inside = [text for text in texts if self._means_something_in_reasoning(text)]
        self._scanners = {
            "text": PatternScanner([*stops, *(text for text in texts if text not in stops)]),
            "reasoning": PatternScanner(inside),
        }
        # Whether line breaks at the end of a text may turn out to stand before a marker.
        self._breaks_may_go = self._format is not None or (
            reasoning is not None and reasoning.reenter
        )

        self._work: deque[tuple[str, bool]] = deque()
        self._events: list[SpanEvent] = []
        self._record = Record()
        self._state: _State = "text"
        self._saying: _Said = "text"
        self._space = ""  # withheld blanks, see `_say` and `_think`
        self._began = False  # something other than blanks was said since the last marker
        self._after_marker = False
        self._gap = False  # only blanks since a marker, which no stop text may match
        self._answered = False  # the reply has text
        self._title = ""
        self._block: _Block | None = None
        self._unpaired = {"open": 0, "call": 0}  # opening markers that were words of the answer
        self._count = 0  # of calls that began
        self._stop: str | None = None
        self._cut = False
        self._finished = False
        self.calls: list[ToolCall] = []
        self.errors: list[ToolCallError] = []
        self._streamed: dict[int, bool] = {}  # calls that began, and whether arguments came

        if in_reasoning:
            self._enter("reasoning")
        if seed:
            self._open_block(seed, "text")
            self._run()

    def _means_something_in_reasoning(self, text: str) -> bool:
        marks = self._dialect.reasoning
        role = self._roles[text]
        if role == "call":
            return marks is not None and marks.call_closes
        return role in ("open", "close")

    # What it has found.

    @property
    def text(self) -> str:
        """The answer so far."""
        return self._record.joined("text")

    @property
    def reasoning(self) -> str:
        """The reasoning so far; its spans, joined."""
        return self._record.joined("reasoning")

    @property
    def spans(self) -> tuple[Span, ...]:
        """Everything so far, in order. After `finish` the spans' raw texts join to `raw`."""
        return self._record.spans

    @property
    def raw(self) -> str:
        """The reply as the model wrote it, markers included; complete after `finish`."""
        return self._record.joined()

    @property
    def reasoning_open(self) -> bool:
        """Whether a span of reasoning is open; after `finish`, whether it was never closed."""
        return self._state in ("title", "reasoning")

    @property
    def undecided(self) -> int:
        """How many characters of what was fed may still become a marker or a stop text."""
        return len(self._scanners[self._saying].held)

    @property
    def stopped(self) -> bool:
        """Whether a stop text has ended the answer."""
        return self._stop is not None

    @property
    def stop(self) -> str | None:
        """The stop text that ended the answer, or None."""
        return self._stop

    @property
    def cut(self) -> bool:
        """Whether the output ended inside a call."""
        return self._cut

    def finish_reason(self, ended: FinishReason) -> FinishReason:
        """The reply's finish reason, when generation ended for the reason `ended`.

        A model that ends its turn after a call wants it made; one that was cut off may have had
        more to say, and keeps `ended`.
        """
        if self._stop is not None:
            return "stop"
        return "tool_calls" if ended == "stop" and self.calls and not self._cut else ended

    # What goes in.

    def feed(self, text: str) -> list[SpanEvent]:
        """Take more text; return what became certain."""
        if text:
            self._work.append((text, False))
            self._run()
        return self._take_events()

    def mark(self, marker: str) -> list[SpanEvent]:
        """Take a marker that is one token; return what became certain."""
        self._work.append((marker, True))
        self._run()
        return self._take_events()

    def finish(self) -> list[SpanEvent]:
        """Say that the output has ended; return all that was withheld."""
        while not self._finished:
            self._run()
            if self._state == "title":
                self._end_title("", ended=True)
            elif self._block is not None:
                self._end_block(incomplete=True)
            elif self._scanners[self._saying].held:
                self._scan("", last=True)
            else:
                self._finished = True
        self._let_go()
        return self._take_events()

    def _take_events(self) -> list[SpanEvent]:
        events, self._events = self._events, []
        return events

    def _run(self) -> None:
        work = self._work
        while work:
            piece, is_mark = work.popleft()
            if self._stop is not None:
                self._record.add("stop", piece)
            elif self._block is not None:
                self._read_block(piece, is_mark=is_mark)
            elif self._state == "title":
                self._read_title(piece, is_mark=is_mark)
            elif not is_mark:
                self._scan(piece)
            elif self._scanners[self._saying].held:
                work.appendleft((piece, True))
                self._scan("", last=True)
            elif piece in self._stops and self._saying == "text":
                self._end_answer(piece)
            elif piece in self._roles:
                self._meet(piece)
            else:
                self._scan(piece)

    # Text and reasoning.

    def _scan(self, text: str, *, last: bool = False) -> None:
        """Look for patterns in `text`, up to the first."""
        if self._gap and text:
            blanks = len(text) - len(text.lstrip())
            self._space += text[:blanks]
            text = text[blanks:]
            if not text:
                return
            self._gap = False
        free, match, rest = self._scanners[self._saying].find(text, last=last)
        if rest:
            self._work.appendleft((rest, False))
        if free:
            self._pass(free)
        if match is None:
            return
        if self._saying == "text" and match.pattern in self._stops:
            self._end_answer(match.pattern)
        else:
            self._meet(match.pattern)

    def _pass(self, text: str) -> None:
        """Say or think `text`, which holds no marker."""
        if self._saying == "text":
            self._say(text)
        else:
            self._think(text)

    def _say(self, text: str) -> None:
        if self._space:
            text, self._space = self._space + text, ""
        if not self._began and self._roles:
            if text.isspace():
                self._space = text
                return
            if self._after_marker and not self._answered:
                said = text.lstrip("\n")
                self._record.add("marker", text[: len(text) - len(said)])
                text = said
        self._began = self._answered = True
        self._gap = False
        if self._breaks_may_go and text.endswith("\n"):
            said = text.rstrip("\n")
            self._space = text[len(said) :]
            text = said
        self._add("text", text)

    def _think(self, text: str) -> None:
        if self._space:
            text, self._space = self._space + text, ""
        if not self._began:
            thought = text.lstrip("\n")
            self._record.add("marker", text[: len(text) - len(thought)])
            if not thought:
                return
            text, self._began = thought, True
        thought = text.rstrip("\n")
        self._space = text[len(thought) :]
        self._add("reasoning", thought)

    def _add(self, kind: _Said, text: str) -> None:
        if not text:
            return
        self._record.add(kind, text)
        last = self._events[-1] if self._events else None
        if kind == "text":
            if isinstance(last, TextDelta):
                self._events[-1] = replace(last, text=last.text + text)
            else:
                self._events.append(TextDelta(text))
        elif isinstance(last, ReasoningDelta):
            self._events[-1] = replace(last, text=last.text + text)
        else:
            self._events.append(ReasoningDelta(text))

    def _let_go(self) -> None:
        """No marker follows the withheld blanks: they were said, unless they only end a marker."""
        if self._saying == "text" and self._after_marker and not self._began:
            self._drop_space()
        space, self._space = self._space, ""
        self._add(self._saying, space)

    def _drop_space(self) -> None:
        self._record.add("marker", self._space)
        self._space = ""

    def _end_answer(self, stop: str) -> None:
        self._let_go()
        self._stop = stop
        self._record.add("stop", stop)

    # Markers.

    def _enter(self, said: _Said) -> None:
        """Begin to say or think, after a marker."""
        self._state = self._saying = said
        self._began = False
        self._after_marker = True
        self._gap = said == "text"

    def _meet(self, marker: str) -> None:
        """Act on a marker in text or reasoning."""
        role = self._roles[marker]
        if self._saying == "reasoning":
            self._meet_in_reasoning(marker, role)
        else:
            self._meet_in_text(marker, role)

    def _meet_in_text(self, marker: str, role: _Role) -> None:
        marks = self._dialect.reasoning
        if role == "call" or (role == "bare" and not self._answered):
            self._open_block(marker, "text", bare=role == "bare")
        elif role == "open" and marks is not None and (marks.reenter or not self._answered):
            self._open_reasoning(marker)
        elif role == "open":
            self._unpaired["open"] += 1
            self._say(marker)
        elif role == "bare":
            self._say(marker)
        else:
            opener = "call" if role == "end" else "open"
            if self._unpaired[opener]:
                self._unpaired[opener] -= 1
                self._say(marker)
            else:
                self._pass_marker(marker)
                self._enter("text")

    def _meet_in_reasoning(self, marker: str, role: _Role) -> None:
        marks = self._dialect.reasoning
        assert marks is not None, "reasoning was entered"
        if role == "close":
            self._pass_marker(marker)
            self._enter("text")
        elif role == "call" and marks.call_closes:
            self._open_block(marker, "reasoning")
        elif role == "open" and (marks.reenter or not self._began):
            self._open_reasoning(marker)
        else:
            self._think(marker)

    def _pass_marker(self, marker: str) -> None:
        self._drop_space()
        self._record.add("marker", marker)

    def _open_reasoning(self, marker: str) -> None:
        marks = self._dialect.reasoning
        assert marks is not None, "a marker of reasoning was met"
        self._pass_marker(marker)
        if marks.title is None:
            self._enter("reasoning")
        else:
            self._state, self._title = "title", ""

    # The word after an opening marker.

    def _read_title(self, piece: str, *, is_mark: bool) -> None:
        if is_mark:
            self._work.appendleft((piece, True))
            self._end_title("")
            return
        size = 0
        room = _LONGEST_TITLE - len(self._title)
        while size < min(len(piece), room) and (piece[size].isalnum() or piece[size] == "_"):
            size += 1
        self._title += piece[:size]
        if size < len(piece) or size == room:
            self._end_title(piece[size:])

    def _end_title(self, rest: str, *, ended: bool = False) -> None:
        """The word is complete, and `rest` follows it."""
        marks = self._dialect.reasoning
        assert marks is not None
        assert marks.title is not None
        title, self._title = self._title, ""
        if rest:
            self._work.appendleft((rest, False))
        if title and title != marks.title and rest.startswith("\n"):
            self._record.add("marker", title)
            self._enter("text")
            return
        self._enter("reasoning")
        if title == marks.title or (ended and marks.title.startswith(title)):
            self._record.add("marker", title)
        else:
            self._think(title)

    # Tool calls.

    def _open_block(self, marker: str, inside: _Said, *, bare: bool = False) -> None:
        written = self._dialect.bare_tools if bare else self._format
        assert written is not None, "without a format nothing opens a block"
        before, self._space = self._space, ""
        self._block = _Block(
            parser=written.block(self._tools),
            opens=written.opens,
            inside=inside,
            before=before,
            base=self._count,
            length=0,
            pieces=[],
            marks=[],
            spans=[],
        )
        self._state = "block"
        self._read_block(marker)

    def _read_block(self, piece: str, *, is_mark: bool = False) -> None:
        block = self._block
        assert block is not None, "only an open block is read"
        if is_mark:
            block.marks.append((block.length, piece))
        block.pieces.append(piece)
        block.length += len(piece)
        for event in block.parser.feed(piece):
            self._meet_call(block, event)
        if block.parser.rest is not None:
            self._close_block(block)
        elif is_mark and self._dialect.end_token_is_final and piece in self._dialect.call_ends:
            self._end_block(incomplete=False)

    def _end_block(self, *, incomplete: bool) -> None:
        """Nothing more comes for the block that is open."""
        block = self._block
        assert block is not None, "only an open block is ended"
        for event in block.parser.finish():
            if isinstance(event, CallFailed) and event.incomplete and not incomplete:
                event = replace(event, incomplete=False)
            self._meet_call(block, event)
        self._close_block(block)

    def _close_block(self, block: _Block) -> None:
        self._block = None
        rest = block.parser.rest or ""
        self._put_back(block, rest)
        fed = "".join(block.pieces)
        used = fed[: len(fed) - len(rest)]
        spans = block.spans
        if "".join(span.raw for span in spans) != used:
            # A format that miscounts must not make the record wrong.
            kind: SpanKind = "call" if block.called else "error"
            spans = [Span(kind, used)]
        failed = any(span.kind == "error" for span in spans)
        if block.called or (failed and block.inside == "text"):
            self._record.add("marker", block.before)
            for span in spans:
                self._record.add(span.kind, span.raw)
            self._enter("text")
            return
        # It was no call. What was being said goes on.
        self._state = self._saying = block.inside
        self._space = block.before
        for span in spans:
            if span.kind == "error":
                self._let_go()
                self._record.add("error", span.raw)
            else:
                self._unpaired["call"] += 1
                self._pass(span.raw)

    def _put_back(self, block: _Block, rest: str) -> None:
        """Read `rest`, the end of what the block was given, once more."""
        start = block.length - len(rest)
        pieces: list[tuple[str, bool]] = []
        at = start
        for place, marker in block.marks:
            if place >= start:
                pieces += [(rest[at - start : place - start], False), (marker, True)]
                at = place + len(marker)
        pieces.append((rest[at - start :], False))
        self._work.extendleft(piece for piece in reversed(pieces) if piece[0])

    def _meet_call(self, block: _Block, event: CallEvent) -> None:
        """Hand on what a block's parser found out, with the reply's index instead of the block's."""
        index = None if event.index is None else block.base + event.index
        if isinstance(event, CallFailed):
            self._fail(block, index, event)
            return
        assert index is not None, "only a failure may come without a call"
        match event:
            case CallStarted(name=name):
                self._announce(block, index, name)
            case ArgumentsDelta(json=piece):
                self._streamed[index] = True
                self._events.append(ToolCallDelta(index, piece))
            case CallParsed():
                self._complete(block, index, event)
            case _:
                assert_never(event)

    def _announce(self, block: _Block, index: int, name: str) -> None:
        if index in self._streamed:
            return
        block.called = True
        self._streamed[index] = False
        self._count = max(self._count, index + 1)
        self._events.append(ToolCallStarted(index, self._id(index), name))

    def _complete(self, block: _Block, index: int, parsed: CallParsed) -> None:
        self._announce(block, index, parsed.name)
        if not self._streamed[index]:
            arguments = json.dumps(parsed.arguments, ensure_ascii=False)
            self._events.append(ToolCallDelta(index, arguments))
        call = ToolCall(
            id=self._id(index),
            name=parsed.name,
            arguments=parsed.arguments,
            raw=parsed.raw,
            notes=parsed.notes,
        )
        self.calls.append(call)
        block.spans.append(Span("call", parsed.raw))
        self._events.append(ToolCallFinished(index, call))

    def _fail(self, block: _Block, index: int | None, failed: CallFailed) -> None:
        if _is_prose(failed, block.opens):
            block.spans.append(Span("text", failed.raw))
            return
        error = ToolCallError(raw=failed.raw, reason=failed.reason, incomplete=failed.incomplete)
        self.errors.append(error)
        self._cut = self._cut or failed.incomplete
        block.spans.append(Span("error", failed.raw))
        self._events.append(ToolCallFailed(index, error))

    def _id(self, index: int) -> str:
        return f"{self._call_ids}_{index}"


def _is_prose(failed: CallFailed, opens: Collection[str]) -> bool:
    return failed.prose or (
        failed.index is None and not failed.incomplete and failed.raw.strip() in opens
    )
