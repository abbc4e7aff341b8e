"""Checks how a tool-call format reads a block, in every way that it can be cut. For their authors.

`read_block` reads one; its `Outcome` is what must not depend on the cuts.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from phyla.testing.cuts import cuts
from phyla.tools import ArgumentsDelta, CallFailed, CallParsed, CallStarted, ToolFormat

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from phyla.messages import Tool


@dataclass(frozen=True)
class Outcome:
    """What a format found in a block.

    Attributes:
        results: the calls that were read and those that could not be, in order.
        json: the arguments of each call that was announced, as JSON text.
        names: the name of each.
        rest: the text behind the block.
    """

    results: tuple[CallParsed | CallFailed, ...]
    json: tuple[str, ...]
    names: tuple[str, ...]
    rest: str

    @property
    def calls(self) -> list[tuple[str, dict[str, object]]]:
        """Name and arguments of each call that was read."""
        parsed = [result for result in self.results if isinstance(result, CallParsed)]
        return [(call.name, call.arguments) for call in parsed]

    @property
    def errors(self) -> list[CallFailed]:
        """What could not be read."""
        return [result for result in self.results if isinstance(result, CallFailed)]

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes of all calls."""
        parsed = [result for result in self.results if isinstance(result, CallParsed)]
        return tuple(note for call in parsed for note in call.notes)


def read_block(form: ToolFormat, pieces: Iterable[str], tools: Sequence[Tool] = ()) -> Outcome:
    """Read a block and whatever follows it from pieces of any size.

    Raises:
        AssertionError: the events contradict one another, or text was lost.
    """
    parser = form.block(tools)
    text, rest = "", None
    names: list[str] = []
    arguments: list[str] = []
    results: list[CallParsed | CallFailed] = []
    ended: set[int] = set()

    def take(events: list[CallStarted | ArgumentsDelta | CallParsed | CallFailed]) -> None:
        for event in events:
            match event:
                case CallStarted(index=index, name=name):
                    assert index == len(names), "calls are counted in order"
                    names.append(name)
                    arguments.append("")
                case ArgumentsDelta(index=index, json=piece):
                    assert index not in ended, "nothing follows a call's end"
                    arguments[index] += piece
                case CallParsed(index=index, name=name):
                    assert names[index] == name
                    assert json.loads(arguments[index], parse_constant=_refuse) == event.arguments
                    ended.add(index)
                    results.append(event)
                case CallFailed(index=index):
                    if index is not None:
                        ended.add(index)
                    results.append(event)

    for piece in pieces:
        text += piece
        if rest is not None:
            rest += piece
            continue
        take(parser.feed(piece))
        rest = parser.rest
    if rest is None:
        take(parser.finish())
        rest = parser.rest
    assert rest is not None, "a block is over when the output is"
    assert ended == set(range(len(names))), "every call that was announced ends"
    assert "".join(result.raw for result in results) + rest == text, "no text is lost"
    return Outcome(tuple(results), tuple(arguments), tuple(names), rest)


def assert_same_in_pieces(form: ToolFormat, text: str, tools: Sequence[Tool] = ()) -> Outcome:
    """Read a text whole and in pieces, and return what was found."""
    whole = read_block(form, [text], tools)
    for pieces in cuts(text):
        assert read_block(form, pieces, tools) == whole, pieces
    return whole


def _refuse(constant: str) -> object:
    raise AssertionError(f"{constant} is no JSON")
