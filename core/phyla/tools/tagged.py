"""Reads values that stand bare between tags, `<parameter=k>` value `</parameter>`.

It looks like XML and is not: nothing is escaped, and a value may hold the very tag that closes it.
Where a value ends, what follows decides.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from phyla.tools.calls import CUT, CallError, CallWriter
from phyla.tools.json_text import quoted, string_piece

if TYPE_CHECKING:
    from collections.abc import Callable

    from phyla.tools.cursor import Cursor, Need
    from phyla.tools.schema import Allowed

_PLAIN = re.compile(r"[^<]+")

WRAPPER, WRAPPER_END = "<tool_call>", "</tool_call>"
FUNCTION_END = "</function>"


@dataclass(frozen=True)
class ValueTags:
    """How values are marked.

    Attributes:
        close: the tag that closes a value.
        opens: the beginnings of the tag that opens the next.
        function: the beginning of the tag that opens the next function.
        wrapped: whether the function stands in `<tool_call>`: then only what can follow a call
            there makes a `</function>` the call's own.
    """

    close: str
    opens: tuple[str, ...]
    function: str
    wrapped: bool


class Ending(Enum):
    """Where the cursor stands after a value."""

    PARAMETER = auto()  # at the next value's opening tag
    FUNCTION = auto()  # behind the function's closing tag, perhaps with the blanks after it
    WRAPPER = auto()  # behind the wrapper's closing tag, perhaps with the blanks after it


class _ValueText:
    """A value's text; hands on what is certain to be part of it, all but a last newline."""

    def __init__(self, stream: Callable[[str], None] | None) -> None:
        self._parts: list[str] = []
        self._stream = stream
        self._streamed = 0  # characters
        self._held = ""
        self.length = 0
        self.frozen = False  # nothing more is certain before the end

    def add(self, text: str) -> None:
        self._parts.append(text)
        self.length += len(text)
        if self._stream is None or self.frozen:
            return
        text = self._held + text
        self._held = "\n" if text.endswith("\n") else ""
        text = text[: len(text) - len(self._held)]
        self._streamed += len(text)
        self._stream(text)

    def end(self, length: int) -> str:
        """The value, ending after `length` characters; one newline there is not part of it."""
        text = "".join(self._parts)[:length]
        text = text.removesuffix("\n")
        if self._stream is not None:
            self._stream(text[self._streamed :])
        return text


def read_value(
    cursor: Cursor,
    calls: CallWriter,
    tags: ValueTags,
    stream: Callable[[str], None] | None,
    *,
    begun: str = "",
) -> Need[tuple[str, Ending]]:
    """Read a value whose opening tag was read; one newline on either side is not part of it.

    It ends at the first closing tag that is followed by another value's opening tag, or by a
    `</function>` that is itself followed by what may follow a call. If there is none, at the last
    `</function>`.

    Args:
        cursor: behind the opening tag.
        calls: takes notes.
        tags: how values are marked.
        stream: takes the text piece by piece, if the caller wants it before the end.
        begun: the value's first blanks, where they were read already.

    Raises:
        CallError: the output ends too early.
    """
    text = _ValueText(stream)
    last: tuple[int, int] | None = None  # the cursor behind the last </function>, the value's end
    if begun:
        text.add(begun.removeprefix("\n"))
    else:
        yield from cursor.accept("\n")
    while True:
        if run := cursor.run(_PLAIN):
            text.add(run)
        char = yield from cursor.peek()
        if char == "":
            if last is None:
                raise CallError(CUT, cut=True)
            cursor.back_to(last[0])
            return text.end(last[1]), Ending.FUNCTION
        end = text.length
        if char != "<":
            continue
        if (yield from cursor.accept(tags.close)):
            passed = tags.close + (yield from cursor.spaces())
            for opening in tags.opens:
                if (yield from cursor.looking_at(opening)):
                    return text.end(end), Ending.PARAMETER
            if (yield from cursor.accept(FUNCTION_END)):
                behind = cursor.offset
                passed += FUNCTION_END + (yield from cursor.spaces())
                if (yield from _may_follow(cursor, tags)):
                    if not tags.wrapped:
                        cursor.back_to(behind)
                    return text.end(end), Ending.FUNCTION
                text.frozen, last = True, (behind, end)
            elif tags.wrapped and (yield from cursor.accept(WRAPPER_END)):
                passed += WRAPPER_END + (yield from cursor.spaces())
                if (yield from _ends_or(cursor, WRAPPER)):
                    calls.note(f"{FUNCTION_END} is missing")
                    return text.end(end), Ending.WRAPPER
            text.add(passed)
        elif (yield from cursor.accept(FUNCTION_END)):
            behind = cursor.offset
            passed = FUNCTION_END + (yield from cursor.spaces())
            if (yield from cursor.looking_at(WRAPPER_END)) or cursor.cut_short(WRAPPER_END):
                calls.note(f"{tags.close} is missing")
                return text.end(end), Ending.FUNCTION
            text.frozen, last = True, (behind, end)
            text.add(passed)
        else:
            cursor.advance()
            text.add("<")


def _may_follow(cursor: Cursor, tags: ValueTags) -> Need[bool]:
    """Whether what stands behind a `</function>` lets it close the call."""
    if tags.wrapped:
        return (yield from _ends_or(cursor, WRAPPER_END, tags.function, WRAPPER))
    for marker in (tags.close, *tags.opens):
        if (yield from cursor.looking_at(marker)):
            return False
    return True


def _ends_or(cursor: Cursor, *markers: str) -> Need[bool]:
    """Whether the output ends here, or inside one of the markers, or one of them comes next."""
    for marker in markers:
        if (yield from cursor.looking_at(marker)):
            return True
    return (yield from cursor.peek()) == "" or cursor.cut_short(*markers)


def read_declared(cursor: Cursor, names: frozenset[str], stop: str) -> Need[str | None]:
    """Read one of `names` up to `stop`, which is left; None as soon as it can be none of them.

    Raises:
        CallError: the output ends too early.
    """
    name = ""
    while True:
        char = yield from cursor.peek()
        if char == "":
            raise CallError(CUT, cut=True)
        if char == stop:
            return name if name in names else None
        name += char
        if not any(known.startswith(name) for known in names):
            return None
        cursor.advance()


class ArgumentWriter:
    """Writes the arguments of one call as JSON, value by value."""

    def __init__(self, calls: CallWriter) -> None:
        self._calls = calls
        self.keys: set[str] = set()

    def begin(self, key: str) -> None:
        """Write `key`; its value comes next."""
        self._calls.write(f"{', ' if self.keys else '{'}{quoted(key)}: ")
        self.keys.add(key)

    def value(self, key: str, text: str, allowed: Allowed, *, guess: bool = False) -> None:
        """Write the value of `key` that `text` stands for."""
        self.begin(key)
        value, notes = allowed.read(text, guess=guess)
        for note in notes:
            self._calls.note(f"{key}: {note}")
        self._calls.write(json.dumps(value, ensure_ascii=False))

    def text_piece(self, piece: str) -> None:
        """Write a piece of a text whose quotes the caller writes."""
        self._calls.write(string_piece(piece))

    def quote(self) -> None:
        """Open or close a text."""
        self._calls.write('"')

    def end(self) -> None:
        """Close the arguments."""
        self._calls.write("}" if self.keys else "{}")
