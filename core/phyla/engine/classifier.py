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

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from phyla.engine.calls import Block, Calls, CallSpanEvent
from phyla.engine.spans import Record, Span
from phyla.engine.stops import PatternScanner
from phyla.events import ReasoningDelta, TextDelta

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from phyla.events import FinishReason, ToolCallError
    from phyla.family import Dialect
    from phyla.messages import Tool, ToolCall

SpanEvent: TypeAlias = TextDelta | ReasoningDelta | CallSpanEvent

_Said: TypeAlias = Literal["text", "reasoning"]
_State: TypeAlias = Literal["text", "reasoning", "title", "block"]
_Role: TypeAlias = Literal["open", "close", "call", "bare", "end"]

# No name of a span is longer than this, so what is longer is no name.
_LONGEST_TITLE = 32


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
        self._block: Block | None = None
        self._inside: _Said = "text"  # what was being said where it began
        self._before = ""  # the line breaks before it, its own if it holds a call
        self._unpaired = {"open": 0, "call": 0}  # opening markers that were words of the answer
        self._stop: str | None = None
        self._finished = False
        self._calls = Calls(call_ids)

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
    def calls(self) -> list[ToolCall]:
        """The calls so far."""
        return self._calls.finished

    @property
    def errors(self) -> list[ToolCallError]:
        """What should have been calls, so far."""
        return self._calls.errors

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
        return self._calls.cut

    def finish_reason(self, ended: FinishReason) -> FinishReason:
        """The reply's finish reason, when generation ended for the reason `ended`.

        A model that ends its turn after a call wants it made; one that was cut off may have had
        more to say, and keeps `ended`.
        """
        if self._stop is not None:
            return "stop"
        return "tool_calls" if ended == "stop" and self.calls and not self.cut else ended

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
        self._inside, self._before, self._space = inside, self._space, ""
        self._block = Block(written.block(self._tools), written.opens, self._calls)
        self._state = "block"
        self._read_block(marker)

    def _read_block(self, piece: str, *, is_mark: bool = False) -> None:
        block = self._block
        assert block is not None, "only an open block is read"
        self._events += block.feed(piece, is_mark=is_mark)
        if block.over:
            self._close_block(block)
        elif is_mark and self._dialect.end_token_is_final and piece in self._dialect.call_ends:
            self._end_block(incomplete=False)

    def _end_block(self, *, incomplete: bool) -> None:
        """Nothing more comes for the block that is open."""
        block = self._block
        assert block is not None, "only an open block is ended"
        self._events += block.finish(incomplete=incomplete)
        self._close_block(block)

    def _close_block(self, block: Block) -> None:
        self._block = None
        self._work.extendleft(reversed(block.rest))
        spans = block.spans
        failed = any(span.kind == "error" for span in spans)
        if block.called or (failed and self._inside == "text"):
            self._record.add("marker", self._before)
            for span in spans:
                self._record.add(span.kind, span.raw)
            self._enter("text")
            return
        # It was no call. What was being said goes on.
        self._state = self._saying = self._inside
        self._space = self._before
        for span in spans:
            if span.kind == "error":
                self._let_go()
                self._record.add("error", span.raw)
            else:
                self._unpaired["call"] += 1
                self._pass(span.raw)
