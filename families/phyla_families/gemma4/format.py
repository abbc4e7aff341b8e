"""How Gemma 4 writes tool calls: `<|tool_call>call:f{a:<|"|>text<|"|>,b:1}<tool_call|>`.

Its strings are quoted by a token of their own and escape nothing. The model falls back to JSON's
or Python's quotes, to bare words, to `=` and to parentheses; all of them are read.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from phyla.tools.calls import CallError, CallWriter, StreamedBlock
from phyla.tools.held import CUT_OFF, HeldCall
from phyla.tools.literals import MAX_DEPTH, MAX_DIGITS, CutOff, LiteralReader, Mismatch
from phyla.tools.pythonic import CallArguments, inner_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from phyla.messages import Tool
    from phyla.tools import BlockParser
    from phyla.tools.cursor import Cursor, Need

START = "<|tool_call>"
END = "<tool_call|>"
QUOTE = '<|"|>'
_CALL = "call:"
# How long a key may be, to be told from text with a colon in it.
_KEY_LIMIT = 128

_NAME = re.compile(r"[\w.:\-]*")
_KEY = re.compile(r"[\w.\-$@]*")
_QUOTED_KEY = re.compile(r"[^<]*")
_SPACE = re.compile(r"\s*")
_TEXT = re.compile(r"[^<]*")
_BARE = re.compile(r"[^,}\]<]*")
_INTEGER = re.compile(r"[+-]?(?:0|[1-9][0-9]*)")
_NUMBER = re.compile(r"[+-]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_CONSTANTS: dict[str, object] = {
    "true": True,
    "True": True,
    "false": False,
    "False": False,
    "null": None,
    "None": None,
}

_Place = Literal["}", "]"]
"""What a value stands in, by its closing bracket."""


@dataclass(frozen=True)
class Gemma4Format:
    """Gemma 4's tool calls."""

    name: str = "gemma4"

    @property
    def opens(self) -> tuple[str, ...]:
        return (START,)

    def block(self, tools: Sequence[Tool]) -> BlockParser:
        return StreamedBlock(lambda cursor, calls: _Block(tools, cursor, calls).read())

    def opening(self, tool: str | None) -> str:
        return START + _CALL + ("" if tool is None else f"{tool}{{")


TOOL_CALLS = Gemma4Format()


class _Block:
    """Reads one block: usually one call, though several may share the markers."""

    def __init__(self, tools: Sequence[Tool], cursor: Cursor, calls: CallWriter) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._cursor = cursor
        self._calls = calls
        self._reader = LiteralReader(cursor, end=END, start=START)
        self._held = HeldCall(cursor, calls, self._reader)

    def read(self) -> Need[None]:
        cursor = self._cursor
        yield from cursor.accept(START)
        yield from cursor.spaces()
        width = yield from self._header(0)
        if width is None:
            if (yield from self._at_end(0)):
                self._held.hold(CallError("the block holds no call"))
                yield from self._close()
            else:
                self._held.prose(START)
            return
        while width is not None:
            self._held.tell()
            yield from self._call(width)
            ahead = yield from cursor.span(_SPACE, 0)
            ahead += (yield from cursor.at(ahead)) == ","
            ahead += yield from cursor.span(_SPACE, ahead)
            width = (yield from self._header(ahead)) if (yield from cursor.at(ahead)) else None
        yield from self._close()

    def _header(self, ahead: int) -> Need[int | None]:
        """How far it is to the bracket behind `call:NAME`, or to the end of the text inside it.

        None if no call stands that far ahead.
        """
        cursor = self._cursor
        for offset, expected in enumerate(_CALL):
            char = yield from cursor.at(ahead + offset)
            if char == "":
                return ahead + offset
            if char != expected:
                return None
        ahead += len(_CALL)
        width = yield from cursor.span(_NAME, ahead)
        space = yield from cursor.span(_SPACE, ahead + width)
        bracket = yield from cursor.at(ahead + width + space)
        if bracket == "":
            return ahead + width + space
        return ahead + width + space if width and bracket in "{(" else None

    def _call(self, width: int) -> Need[None]:
        cursor = self._cursor
        header = cursor.glance(width)
        cursor.advance(width)
        bracket = yield from cursor.at()
        if bracket == "":
            self._held.hold(CallError(CUT_OFF, cut=True))
            return
        name = header[header.index(_CALL) + len(_CALL) :].strip()
        cursor.advance()
        self._calls.announce(name)
        tool = self._tools.get(name)
        if bracket == "(":
            self._reader.note("the arguments were written as in Python")
            reading = CallArguments(cursor, self._calls, self._reader, tool).read()
        else:
            reading = self._arguments(tool)
        yield from self._held.attempt(reading, self._recover)

    def _arguments(self, tool: Tool | None) -> Need[None]:
        """Read from behind the opening brace to behind the closing one, and write it as JSON."""
        cursor, calls = self._cursor, self._calls
        given: set[str] = set()
        while (yield from self._more("}")):
            key = yield from self._key()
            if key in given:
                raise Mismatch(f"the argument {key!r} is given twice")
            calls.write(f"{', ' if given else '{'}{json.dumps(key, ensure_ascii=False)}: ")
            given.add(key)
            if (yield from self._at_string()):
                calls.write('"')
                yield from self._string("}", lambda text: calls.write(inner_json(text)))
                calls.write('"')
            else:
                value = yield from self._value("}", 1, bare_is_text=_is_text(tool, key))
                calls.write(json.dumps(value, ensure_ascii=False, allow_nan=False))
            yield from self._reader.separator("}")
        cursor.advance()
        calls.write("}" if given else "{}")

    def _more(self, close: _Place) -> Need[bool]:
        """Whether another member comes, rather than the closing bracket."""
        yield from self._cursor.spaces()
        char = yield from self._cursor.at()
        if char == "":
            raise CutOff
        return char != close

    def _key(self) -> Need[str]:
        """Read a key and its colon."""
        cursor = self._cursor
        char = yield from cursor.at()
        if (yield from cursor.accept(QUOTE)):
            width = yield from cursor.span(_QUOTED_KEY, 0, _KEY_LIMIT)
            key = cursor.glance(width)
            cursor.advance(width)
            if not (yield from cursor.accept(QUOTE)):
                yield from self._refuse("expected the end of a quoted key")
        elif char in "'\"":
            pieces: list[str] = []
            yield from self._reader.string(":=", pieces.append)
            key = "".join(pieces)
        else:
            width = yield from cursor.span(_KEY, 0, _KEY_LIMIT)
            if not width:
                yield from self._refuse("expected a key")
            key = cursor.glance(width)
            cursor.advance(width)
        yield from cursor.spaces()
        if (yield from cursor.accept("=")):
            self._reader.note("a key had '=' instead of ':'")
        elif not (yield from cursor.accept(":")):
            yield from self._refuse(f"expected ':' behind the key {key!r}")
        yield from cursor.spaces()
        return key

    def _refuse(self, reason: str) -> Need[None]:
        """Say that something else was expected here; unless the text ends, all of it is there."""
        if (yield from self._cursor.at()) == "" or self._cursor.cut_short(QUOTE):
            raise CutOff
        raise Mismatch(reason)

    def _at_string(self) -> Need[bool]:
        char = yield from self._cursor.at()
        if char == "":
            raise CutOff
        return char in "'\"" or (yield from self._cursor.sees(QUOTE))

    def _value(self, place: _Place, depth: int, *, bare_is_text: bool = False) -> Need[object]:
        cursor = self._cursor
        if depth > MAX_DEPTH:
            raise Mismatch(f"nested more than {MAX_DEPTH} deep")
        if (yield from self._at_string()):
            pieces: list[str] = []
            yield from self._string(place, pieces.append)
            return "".join(pieces)
        char = yield from cursor.at()
        if char == "[":
            cursor.advance()
            items: list[object] = []
            while (yield from self._more("]")):
                items.append((yield from self._value("]", depth + 1)))
                yield from self._reader.separator("]")
            cursor.advance()
            return items
        if char == "{":
            cursor.advance()
            members: dict[str, object] = {}
            while (yield from self._more("}")):
                key = yield from self._key()
                members[key] = yield from self._value("}", depth + 1)
                yield from self._reader.separator("}")
            cursor.advance()
            return members
        return (yield from self._bare(place, is_text=bare_is_text))

    def _string(self, place: _Place, emit: Callable[[str], None]) -> Need[None]:
        cursor = self._cursor
        if not (yield from cursor.accept(QUOTE)):
            yield from self._reader.string(",]}", emit)
            return
        while True:
            emit(cursor.run(_TEXT))
            char = yield from cursor.at()
            if char == "":
                raise CutOff
            if char != "<":
                continue
            if (yield from cursor.sees(QUOTE)):
                if (yield from self._closes(place, len(QUOTE))):
                    cursor.advance(len(QUOTE))
                    return
                self._reader.note("a quote mark inside a string was kept")
            elif (yield from self._at_end(0)) and not (yield from self._quoted(place)):
                raise Mismatch("a string is not closed")
            elif cursor.cut_short(QUOTE, END):
                raise CutOff
            emit("<")
            cursor.advance()

    def _closes(self, place: _Place, ahead: int) -> Need[bool]:
        """Whether a string may have ended before this offset: where a member ends, or the text."""
        cursor = self._cursor
        ahead += yield from cursor.span(_SPACE, ahead)
        char = yield from cursor.at(ahead)
        if char in {"", "}", "]"} or (yield from self._at_end(ahead)):
            return True
        return char == "," and (place == "]" or (yield from self._key_at(ahead + 1)))

    def _key_at(self, ahead: int) -> Need[bool]:
        """Whether a key and its colon stand at an offset, or the closing brace, or no more text."""
        cursor = self._cursor
        ahead += yield from cursor.span(_SPACE, ahead)
        char = yield from cursor.at(ahead)
        if char == "" or char == "}":
            return True
        if (yield from cursor.sees(QUOTE, ahead)):
            ahead += len(QUOTE)
            ahead += yield from cursor.span(_QUOTED_KEY, ahead, _KEY_LIMIT)
            if not (yield from cursor.sees(QUOTE, ahead)):
                return (yield from cursor.at(ahead)) == ""
            ahead += len(QUOTE)
        else:
            quoted = char in "'\""
            width = yield from cursor.span(_KEY, ahead + quoted, _KEY_LIMIT)
            if not width and (yield from cursor.at(ahead + quoted)) != "":
                return False
            ahead += quoted + width
            if quoted and (yield from cursor.at(ahead)) not in {char, ""}:
                return False
            ahead += quoted
        ahead += yield from cursor.span(_SPACE, ahead)
        return (yield from cursor.at(ahead)) in {":", "=", ""}

    def _quoted(self, place: _Place) -> Need[bool]:
        """Whether the closing marker here is part of the string, which then has to end behind it."""
        cursor = self._cursor
        ahead = len(END)
        while True:
            ahead += yield from cursor.span(_TEXT, ahead)
            if (yield from cursor.at(ahead)) == "":
                return False
            if (yield from cursor.sees(QUOTE, ahead)):
                return (yield from self._closes(place, ahead + len(QUOTE)))
            if (yield from self._at_end(ahead)) or (yield from cursor.sees(START, ahead)):
                return False
            ahead += 1

    def _bare(self, place: _Place, *, is_text: bool) -> Need[object]:
        """Read a value without quotes: a number, a constant, or words."""
        cursor = self._cursor
        pieces: list[str] = []
        while True:
            pieces.append(cursor.run(_BARE))
            char = yield from cursor.at()
            if char == "":
                raise CutOff
            if char in "}]":
                break
            if char == "," and (place == "]" or (yield from self._key_at(1))):
                break
            if char == "<":
                if (yield from self._at_end(0)) or (yield from cursor.sees(START)):
                    raise Mismatch("a value ends with the block")
                if cursor.cut_short(START, END):
                    raise CutOff
            if char in ",<":
                pieces.append(char)
                cursor.advance()
        text = "".join(pieces).strip()
        if not text:
            raise Mismatch("a value is missing")
        if text in _CONSTANTS:
            return _CONSTANTS[text]
        if _NUMBER.fullmatch(text) and not is_text and len(text) <= MAX_DIGITS:
            number = int(text) if _INTEGER.fullmatch(text) else float(text)
            if not math.isinf(number):
                return number
        self._reader.note("a value without quotes was taken as text")
        return text

    def _recover(self, depth: int) -> Need[None]:
        """Read on to where the block of a broken call ends."""
        cursor = self._cursor
        while True:
            cursor.run(_TEXT)
            char = yield from cursor.at()
            if char == "":
                return
            if char == "<":
                if (yield from self._at_end(0)) or (yield from cursor.sees(START)):
                    return
                cursor.advance()

    def _at_end(self, ahead: int) -> Need[bool]:
        return (yield from self._cursor.sees(END, ahead))

    def _close(self) -> Need[None]:
        """Read what closes the block; it belongs to the last call."""
        cursor = self._cursor
        space = yield from cursor.span(_SPACE, 0)
        if (yield from self._at_end(space)):
            cursor.advance(space + len(END))
        else:
            self._reader.note("the closing marker was missing")
        self._held.close(cut=False)


def _is_text(tool: Tool | None, name: str) -> bool:
    """Whether the tool's schema says that this argument is text, even if it looks like a number."""
    properties = tool.parameters.get("properties") if tool else None
    schema = properties.get(name) if isinstance(properties, Mapping) else None
    return isinstance(schema, Mapping) and schema.get("type") == "string"
