"""The parts of a reply as the model wrote them. Knows no dialect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

SpanKind: TypeAlias = Literal["text", "reasoning", "call", "error", "marker", "stop"]


@dataclass(frozen=True)
class Span:
    """A stretch of the raw output.

    Kinds: `text` and `reasoning` are shown as they are; `call` is a tool call's own words, wrapper
    included, and `error` those of something that should have been one; `marker` is a marker with
    the line breaks and blanks around it that belong to it; `stop` is a stop text and what came
    after it.
    """

    kind: SpanKind
    raw: str


class Record:
    """The spans of a reply, in order; those of text, reasoning and markers join as they grow."""

    def __init__(self) -> None:
        self._parts: list[tuple[SpanKind, list[str]]] = []

    def add(self, kind: SpanKind, raw: str) -> None:
        """Add the next stretch."""
        if not raw:
            return
        joins = kind not in ("call", "error")
        if joins and self._parts and self._parts[-1][0] == kind:
            self._parts[-1][1].append(raw)
        else:
            self._parts.append((kind, [raw]))

    @property
    def spans(self) -> tuple[Span, ...]:
        """The spans so far."""
        return tuple(Span(kind, "".join(raw)) for kind, raw in self._parts)

    def joined(self, *kinds: SpanKind) -> str:
        """The raw text of all spans of some kinds, or of all spans."""
        return "".join(
            piece for kind, raw in self._parts if not kinds or kind in kinds for piece in raw
        )
