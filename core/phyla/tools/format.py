"""What a tool-call format is: where calls start, and a parser that reads one block as it streams.

A *block* is what stands between two places of ordinary text: one call or several, with whatever
wraps them. Formats know no model and no tokenizer; they work on text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from phyla.messages import Tool


@dataclass(frozen=True)
class CallStarted:
    """A call's name is known. `index` counts the calls of the block from 0."""

    index: int
    name: str


@dataclass(frozen=True)
class ArgumentsDelta:
    """More of a call's arguments, as JSON text; the deltas of a call join to its final JSON."""

    index: int
    json: str


@dataclass(frozen=True)
class CallParsed:
    """A call is complete.

    Attributes:
        arguments: the parsed arguments.
        raw: the model's own words for this call.
        notes: what had to be repaired or did not fit the schema, in words.
    """

    index: int
    name: str
    arguments: dict[str, object]
    raw: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class CallFailed:
    """Something that should be a call cannot be parsed; nothing of it is lost.

    Attributes:
        index: the call's index if it was announced before, else None.
        raw: the text.
        reason: why, in words.
        incomplete: it was cut off by the end of the output, rather than wrong.
        prose: no call was meant: `raw`, which begins with the opening marker, is ordinary text.
    """

    index: int | None
    raw: str
    reason: str
    incomplete: bool = False
    prose: bool = False


CallEvent: TypeAlias = CallStarted | ArgumentsDelta | CallParsed | CallFailed


class BlockParser(Protocol):
    """Reads one block. However its text is cut, the events join to the same calls."""

    def feed(self, text: str) -> list[CallEvent]:
        """Take more text, the opening marker first; return what became certain."""
        ...

    def finish(self) -> list[CallEvent]:
        """Say that the output ended inside the block; return what that decides."""
        ...

    @property
    def rest(self) -> str | None:
        """None while the block is open; then the text after it, which is not the block's."""
        ...


class ToolFormat(Protocol):
    """One way of writing tool calls."""

    @property
    def name(self) -> str:
        """Names the format in reports."""
        ...

    @property
    def opens(self) -> tuple[str, ...]:
        """The texts that open a block, most usual first."""
        ...

    def block(self, tools: Sequence[Tool]) -> BlockParser:
        """A parser for the next block; `tools` are those offered to the model."""
        ...

    def opening(self, tool: str | None) -> str:
        """The text to seed a reply with so that it must be a call, of `tool` if one is named."""
        ...
