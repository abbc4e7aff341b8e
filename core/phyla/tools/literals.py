"""Python and JSON literals in a model's text, read without `eval` and as the text arrives.

Knows strings, numbers, constants, lists, tuples, sets and dictionaries in either spelling, and the
slips that models make in them. What comes out is always JSON: no tuple, no infinity. Knows nothing
of calls.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from phyla.tools.cursor import Cursor, Need

if TYPE_CHECKING:
    from collections.abc import Callable

# Deeper nesting than any schema asks for; the readers below nest as deeply as the text does.
MAX_DEPTH = 64
# Python refuses to print integers of more than 4300 digits, and no argument is one.
MAX_DIGITS = 1000
# How far to look behind a quote or a comma to tell the end of a value from prose.
LOOK = 64

_SPACE = re.compile(r"\s*")
_WORD = re.compile(r"\w*")
_NUMBER = re.compile(r"[0-9A-Za-z_.+\-]*")
_INTEGER = re.compile(r"[0-9]+(?:_[0-9]+)*")
_BASED = re.compile(r"0(?:[xX][0-9a-fA-F_]+|[oO][0-7_]+|[bB][01_]+)")
_FLOAT = re.compile(r"(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)(?:[eE][+-]?[0-9]+)?")
_HEX = re.compile(r"[0-9a-fA-F]*")
_OCTAL = re.compile(r"[0-7]*")
_CHARACTER_NAME = re.compile(r"[A-Za-z0-9 \-]*")
_CONSTANTS: dict[str, object] = {
    "True": True,
    "true": True,
    "False": False,
    "false": False,
    "None": None,
    "null": None,
}
_ESCAPES = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "/": "/",
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "v": "\v",
    "\n": "",
}
_HEX_ESCAPES = {"x": 2, "u": 4, "U": 8}


@dataclass(frozen=True)
class Literal:
    """A literal that was read.

    Attributes:
        value: str, int, float, bool, None, list or dict with str keys, all the way down.
        end: the offset behind it.
        notes: what had to be repaired, in words.
    """

    value: object
    end: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Incomplete:
    """The text so far may be the beginning of a literal, or of a longer one."""


@dataclass(frozen=True)
class Malformed:
    """There is no literal here; `position` is where that showed."""

    position: int
    reason: str


def read_literal(
    text: str, start: int = 0, *, whole: bool = True
) -> Literal | Incomplete | Malformed:
    """Read the literal that stands at an offset; white space before it is skipped.

    Args:
        text: the text; what follows the literal is not looked at, so compare `end` with its length.
        start: the offset.
        whole: no more text will come. Otherwise a number or a word at the end is `Incomplete`,
            since it may go on.
    """
    cursor = Cursor()
    cursor.feed(text[start:])
    if whole:
        cursor.end()
    reader = LiteralReader(cursor)
    reading = _spaced(reader)
    try:
        next(reading)
    except StopIteration as stop:
        return Literal(stop.value, start + cursor.offset, tuple(reader.notes))
    except CutOff:
        return Incomplete()
    except Mismatch as mismatch:
        return Malformed(start + cursor.offset, mismatch.reason)
    return Incomplete()


def _spaced(reader: LiteralReader) -> Need[object]:
    yield from reader.cursor.spaces()
    return (yield from reader.value())


class Mismatch(Exception):
    """The text is not what the grammar wants; no caller of this package ever meets it.

    Attributes:
        reason: why, in words.
        depth: how many brackets were open.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        self.depth = 0
        super().__init__(reason)


class CutOff(Exception):
    """The text ended in the middle."""


class LiteralReader:
    """Reads literals from a cursor.

    Models forget to escape quotes, so inside brackets a quote closes its string only where a value
    can end; a text that is right Python or right JSON reads as such.

    Attributes:
        cursor: the text.
        notes: what had to be repaired so far.
    """

    def __init__(self, cursor: Cursor, *, end: str = "", start: str = "") -> None:
        """Read from `cursor`, in a block that the text `end` closes and that `start` opens."""
        self.cursor = cursor
        self.notes: list[str] = []
        self._end = end
        self._markers = tuple(marker for marker in (end, start) if marker)
        self._settled = 0

    def note(self, text: str) -> None:
        """Say once that something was repaired."""
        if text not in self.notes:
            self.notes.append(text)

    def value(self, follows: str = "", depth: int = 0) -> Need[object]:
        """Read a value.

        Args:
            follows: the characters that may follow it; "" if anything may.
            depth: how many brackets are open around it.

        Raises:
            Mismatch: there is no value here; the cursor stands where that showed.
            CutOff: the text ended first.
        """
        cursor = self.cursor
        if depth > MAX_DEPTH:
            raise Mismatch(f"nested more than {MAX_DEPTH} deep")
        first = yield from cursor.at()
        if first == "":
            raise CutOff
        if first in "'\"":
            return (yield from self._text(follows))
        if first == "[":
            return (yield from self._items("]", depth))[0]
        if first == "(":
            items, commas = yield from self._items(")", depth)
            return items[0] if len(items) == 1 and not commas else items
        if first == "{":
            return (yield from self._braces(depth))
        if first in "+-." or (first.isascii() and first.isdigit()):
            return (yield from self._number())
        if first.isalpha() or first == "_":
            return (yield from self._word(follows))
        raise Mismatch(f"no value begins with {first!r}")

    def string(self, follows: str, emit: Callable[[str], None]) -> Need[None]:
        """Read a string that opens here, with or without a prefix; its text goes to `emit`.

        Args:
            follows: the characters that may follow it; "" if anything may.
            emit: takes the text in pieces, as soon as each is certain.

        Raises:
            Mismatch: the block ended first.
            CutOff: the text ended first.
        """
        cursor = self.cursor
        raw = False
        quote = yield from cursor.at()
        if quote not in "'\"":
            raw = quote in "rR"
            cursor.advance(1)
            quote = yield from cursor.at()
        mark = quote * 3 if (yield from cursor.sees(quote * 3)) else quote
        cursor.advance(len(mark))
        plain = _plain(quote, self._end[:1])
        escaped = 0
        while True:
            char = yield from cursor.at()
            if char == "":
                raise CutOff
            if char == quote:
                if (yield from self._closes(mark, follows)):
                    cursor.advance(len(mark))
                    return
                if mark == quote:
                    self.note("a quote inside a string was not escaped")
                emit(quote)
                cursor.advance(1)
            elif char == "\\":
                following = yield from cursor.at(1)
                if following == "":
                    raise CutOff
                if following == quote:
                    if (
                        mark == quote
                        and escaped % 2 == 0
                        and (yield from self._stops(mark, follows))
                    ):
                        self.note("a backslash before a closing quote was not escaped")
                        emit("\\")
                        cursor.advance(2)
                        return
                    escaped += 1
                if raw:
                    emit("\\" + following)
                    cursor.advance(2)
                else:
                    emit((yield from self._escape(following)))
            elif self._end and char == self._end[0]:
                if (yield from cursor.sees(self._end)) and (yield from self._ended(mark, follows)):
                    raise Mismatch("a string is not closed")
                emit(char)
                cursor.advance(1)
            else:
                emit(cursor.run(plain))

    def _text(self, follows: str) -> Need[str]:
        pieces: list[str] = []
        yield from self.string(follows, pieces.append)
        return "".join(pieces)

    def _closes(self, mark: str, follows: str) -> Need[bool]:
        """Whether the quote here closes the string, rather than stand in it unescaped."""
        if len(mark) == 3:
            # Of four quotes in a row the last three close.
            return (yield from self.cursor.sees(mark)) and (yield from self.cursor.at(3)) != mark[0]
        return (yield from self._ends(1, follows))

    def _ends(self, offset: int, follows: str) -> Need[bool]:
        """Whether a value may have ended before this offset.

        True wherever right Python or JSON goes on behind a string. A comma with two words behind
        it is prose: `'it's fine', he said'`.
        """
        cursor = self.cursor
        if not follows:
            return True
        offset += yield from cursor.span(_SPACE, offset, LOOK)
        char = yield from cursor.at(offset)
        if char == "":
            return True
        if char != ",":
            return char in follows or bool(
                self._end and (yield from cursor.sees(self._end, offset))
            )
        if "," not in follows:
            return False
        offset += 1
        offset += yield from cursor.span(_SPACE, offset, LOOK)
        width = yield from cursor.span(_WORD, offset, LOOK)
        if not width:
            return True
        word = cursor.glance(width, offset)
        offset += width
        char = yield from cursor.at(offset)
        if char != "" and char in "'\"":
            return word in {"r", "R", "u", "U"}
        space = yield from cursor.span(_SPACE, offset, LOOK)
        char = yield from cursor.at(offset + space)
        return not (space and char != "" and (char.isalnum() or char in "_'\""))

    def _stops(self, mark: str, follows: str) -> Need[bool]:
        r"""Whether the `\` and quote here end the string, as in the path `'C:\'`.

        Read as an escape they must leave a string that closes where a value can end; if they do
        not, the backslash was meant as itself.
        """
        if self.cursor.offset < self._settled or not (yield from self._ends(2, follows)):
            return False
        close, found = yield from self._next(mark, 2)
        if found == "quote" and not (yield from self._ends(close + 1, follows)):
            return True
        if found == "marker" or (found == "end" and not self._end):
            return True
        # An escape then, as is every other up to there. A block that its marker should close and
        # that the output's end cuts is not understood any further.
        self._settled = self.cursor.offset + close
        return False

    def _ended(self, mark: str, follows: str) -> Need[bool]:
        """Whether the closing marker here ends the block, rather than be quoted by the string."""
        close, found = yield from self._next(mark, len(self._end))
        return found != "quote" or not (yield from self._ends(close + len(mark), follows))

    def _next(self, mark: str, offset: int) -> Need[tuple[int, str]]:
        """Where the next closing quote or marker or the end is, and which of these it is."""
        cursor = self.cursor
        plain = _plain(mark[0], "".join(marker[0] for marker in self._markers))
        while True:
            offset += yield from cursor.span(plain, offset)
            char = yield from cursor.at(offset)
            if char == "":
                return offset, "end"
            if char == "\\":
                offset += 2
            elif char == mark[0] and (yield from cursor.sees(mark, offset)):
                return offset, "quote"
            else:
                for marker in self._markers:
                    if (yield from cursor.sees(marker, offset)):
                        return offset, "marker"
                offset += 1

    def _escape(self, kind: str) -> Need[str]:
        """Read the escape here, a backslash and `kind`."""
        cursor = self.cursor
        cursor.advance(2)
        if kind in _ESCAPES:
            return _ESCAPES[kind]
        if kind in _HEX_ESCAPES:
            return (yield from self._code(kind))
        if kind in "01234567":
            width = yield from cursor.span(_OCTAL, 0, 2)
            digits = kind + cursor.glance(width)
            cursor.advance(width)
            return chr(int(digits, 8))
        if kind == "N" and (yield from cursor.at()) == "{":
            width = yield from cursor.span(_CHARACTER_NAME, 1, LOOK)
            name = cursor.glance(width, 1)
            if (yield from cursor.at(1 + width)) == "}":
                try:
                    char = unicodedata.lookup(name)
                except KeyError:
                    pass
                else:
                    cursor.advance(width + 2)
                    return char
        self.note(f"the unknown escape \\{kind} was kept as it is")
        return "\\" + kind

    def _code(self, kind: str) -> Need[str]:
        r"""Read the digits of a `\x`, `\u` or `\U` escape; JSON's surrogate pairs are joined."""
        cursor = self.cursor
        size = _HEX_ESCAPES[kind]
        width = yield from cursor.span(_HEX, 0, size)
        code = int(cursor.glance(width) or "0", 16)
        if width < size or code > 0x10FFFF:
            self.note(f"the unknown escape \\{kind} was kept as it is")
            return "\\" + kind
        cursor.advance(size)
        if not 0xD800 <= code < 0xE000:
            return chr(code)
        if code < 0xDC00 and (yield from cursor.sees("\\u")):
            width = yield from cursor.span(_HEX, 2, 4)
            low = int(cursor.glance(width, 2) or "0", 16)
            if width == 4 and 0xDC00 <= low < 0xE000:
                cursor.advance(6)
                return chr(0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00))
        self.note("half a surrogate pair became U+FFFD")
        return "\ufffd"

    def _items(self, close: str, depth: int) -> Need[tuple[list[object], bool]]:
        """Read what stands in brackets: the items, and whether there was a comma."""
        cursor = self.cursor
        cursor.advance(1)
        items: list[object] = []
        commas = False
        try:
            while True:
                yield from cursor.spaces()
                if (yield from cursor.at()) == close:
                    cursor.advance(1)
                    return items, commas
                items.append((yield from self.value(",)]}", depth + 1)))
                commas |= yield from self.separator(close)
        except Mismatch as mismatch:
            mismatch.depth += 1
            raise

    def separator(self, close: str) -> Need[bool]:
        """Read a comma, or nothing before the closing bracket; whether there was a comma.

        Raises:
            Mismatch: something else stands here.
            CutOff: the text ended.
        """
        yield from self.cursor.spaces()
        char = yield from self.cursor.at()
        if char == "":
            raise CutOff
        if char == ",":
            self.cursor.advance(1)
            return True
        if char == close:
            return False
        raise Mismatch(f"expected ',' or {close!r}, found {char!r}")

    def _braces(self, depth: int) -> Need[object]:
        """Read a dictionary, or a set, which becomes a list."""
        cursor = self.cursor
        cursor.advance(1)
        pairs: dict[str, object] = {}
        members: list[object] = []
        try:
            while True:
                yield from cursor.spaces()
                if (yield from cursor.at()) == "}":
                    cursor.advance(1)
                    return members or pairs
                key = yield from self.key(depth)
                yield from cursor.spaces()
                if (yield from cursor.at()) == ":" and not members:
                    cursor.advance(1)
                    yield from cursor.spaces()
                    name = self._name(key)
                    pairs[name] = yield from self.value(",)]}", depth + 1)
                elif pairs:
                    raise Mismatch("expected ':' behind a key")
                else:
                    members.append(key)
                yield from self.separator("}")
        except Mismatch as mismatch:
            mismatch.depth += 1
            raise

    def key(self, depth: int = 0) -> Need[object]:
        """Read a dictionary's key, which may lack its quotes; a set's member is read alike."""
        cursor = self.cursor
        first = yield from cursor.at()
        if first.isalpha() or first == "_":
            width = yield from cursor.span(_WORD, 0, LOOK)
            word = cursor.glance(width)
            space = yield from cursor.span(_SPACE, width, LOOK)
            if word not in _CONSTANTS and (yield from cursor.at(width + space)) == ":":
                self.note("a key had no quotes")
                cursor.advance(width)
                return word
        return (yield from self.value(":,)]}", depth + 1))

    def _name(self, key: object) -> str:
        if isinstance(key, str):
            return key
        if isinstance(key, list | dict):
            raise Mismatch("a key should be a string")
        self.note("a key that is no string became one")
        return json.dumps(key)

    def _number(self) -> Need[object]:
        cursor = self.cursor
        width = yield from cursor.span(_NUMBER, 0, MAX_DIGITS)
        text = cursor.glance(width)
        if width == MAX_DIGITS:
            raise Mismatch("a number has too many digits")
        value = self._number_of(text)
        cursor.advance(width)
        return value

    def _number_of(self, text: str) -> int | float | str:
        digits = text.lstrip("+-")
        if len(text) - len(digits) > 1:
            raise Mismatch(f"{text!r} is no number")
        sign = -1 if text.startswith("-") else 1
        if _INTEGER.fullmatch(digits):
            if digits[0] == "0" and digits.strip("0_"):
                # A code or a postcode, most likely; as a number it would lose its zeros.
                self.note(f"{text} is no number and was kept as text")
                return text
            return sign * int(digits)
        try:
            if _BASED.fullmatch(digits):
                return sign * int(digits, 0)
            value = sign * float(digits) if _FLOAT.fullmatch(digits) else None
        except ValueError:
            value = None
        if value is None:
            raise Mismatch(f"{text!r} is no number")
        if math.isinf(value):
            raise Mismatch(f"the number {text} is too large")
        return value

    def _word(self, follows: str) -> Need[object]:
        cursor = self.cursor
        width = yield from cursor.span(_WORD, 0, LOOK)
        word = cursor.glance(width)
        if word in _CONSTANTS:
            cursor.advance(width)
            return _CONSTANTS[word]
        if word in {"r", "R", "u", "U"}:
            char = yield from cursor.at(1)
            if char != "" and char in "'\"":
                return (yield from self._text(follows))
        raise Mismatch(f"{word} is a name, not a value")


@lru_cache(maxsize=16)
def _plain(quote: str, markers: str) -> re.Pattern[str]:
    """A run of characters that are neither this quote, nor a backslash, nor one of `markers`."""
    return re.compile(f"[^\\\\{quote}{re.escape(markers)}]*")
