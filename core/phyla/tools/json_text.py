"""Reads JSON as models write it, and writes it out as JSON should be. Knows no tool-call format.

What is wrong in a way that leaves no doubt is repaired, with a note: escapes that JSON lacks, raw
control characters, Python's quotes, constants and tuples, a comma too many. Numbers that Python
cannot hold, and other words that begin like numbers, become text: nothing is ever dropped.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable

from phyla.tools.calls import CUT, CallError
from phyla.tools.cursor import Cursor, Need

MAX_DEPTH = 100
MAX_DIGITS = 300  # no double is longer, and Python may refuse to read longer integers

_RUN = {'"': re.compile(r'[^"\\\x00-\x1f]+'), "'": re.compile(r"[^'\"\\\x00-\x1f]+")}
_HEX = re.compile(r"[0-9A-Fa-f]")
_WORD = re.compile(r"[^\s,:\[\](){}\"'<]+")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_LOOSE_NUMBER = re.compile(r"[+-]?(0|[1-9][0-9]*|[0-9]+\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_ALMOST_NUMBER = re.compile(r"[+\-.]*([0-9].*|NaN|nan|Infinity|inf)", re.DOTALL)
_CONSTANTS = {"True": "true", "False": "false", "None": "null"}
_CLOSERS = {"{": "}", "[": "]", "(": ")"}

_RAW_CONTROL = "a raw control character in a string was escaped"
_BAD_QUOTE_ESCAPE = "an escaped single quote was read as one"
_BAD_ESCAPE = "a backslash that escapes nothing in JSON was kept as one"

Write = Callable[[str], None]


def quoted(text: str) -> str:
    """`text` as a JSON string."""
    return json.dumps(text, ensure_ascii=False)


def string_piece(text: str) -> str:
    """`text` as the inside of a JSON string."""
    return quoted(text)[1:-1]


class JsonReader:
    """Reads JSON from a cursor and writes it, strict, piece by piece as it becomes certain."""

    def __init__(self, cursor: Cursor, note: Write, *, end: str | None = None) -> None:
        """Prepare to read.

        Args:
            cursor: where the text is.
            note: takes what was repaired, in words.
            end: a text that can only follow the whole value; where it stands although brackets are
                open, and no value is missing, they are taken as closed.
        """
        self._cursor, self._note, self._end = cursor, note, end
        self._closers: list[str] = []

    @property
    def depth(self) -> int:
        """How many brackets are open."""
        return len(self._closers)

    def value(self, write: Write) -> Need[None]:
        """Read one value.

        Raises:
            CallError: it is no JSON, beyond repair, or ends too early.
        """
        cursor, closers = self._cursor, self._closers
        while True:
            yield from cursor.spaces()
            char = yield from cursor.peek()
            if char in ('"', "'"):
                yield from self.string(write)
            elif char in ("{", "[", "("):
                if len(closers) == MAX_DEPTH:
                    raise CallError(f"it is nested deeper than {MAX_DEPTH}")
                if char == "(":
                    self._note("a Python tuple was read as a list")
                cursor.advance()
                closers.append(_CLOSERS[char])
                write("{" if char == "{" else "[")
                yield from cursor.spaces()
                if (yield from cursor.peek()) != closers[-1]:
                    if char == "{":
                        yield from self.key(write)
                    continue
            else:
                yield from self._word(write)
            yield from self._after_value(write)
            if not closers:
                return

    def string(self, write: Write) -> Need[None]:
        """Read one string, in double or single quotes."""
        cursor = self._cursor
        quote = yield from cursor.peek()
        if quote not in _RUN:
            raise unexpected(quote, "a string")
        if quote == "'":
            self._note("single quotes were read as double quotes")
        cursor.advance()
        write('"')
        while True:
            if run := cursor.run(_RUN[quote]):
                write(run)
            char = yield from cursor.peek()
            if char == "":
                raise CallError(CUT, cut=True)
            if _RUN[quote].match(char):
                continue
            cursor.advance()
            if char == quote:
                write('"')
                return
            if char == "\\":
                yield from self._escape(quote, write)
            else:
                if char != '"':
                    self._note(_RAW_CONTROL)
                write(string_piece(char))

    def key(self, write: Write) -> Need[None]:
        """Read a key and its colon."""
        yield from self.string(write)
        yield from self.colon()
        write(": ")

    def colon(self) -> Need[None]:
        """Read a colon and the blanks around it."""
        yield from self._cursor.spaces()
        if not (yield from self._cursor.accept(":")):
            raise unexpected((yield from self._cursor.peek()), "':'")
        yield from self._cursor.spaces()

    def _after_value(self, write: Write) -> Need[None]:
        """Read what follows a value, up to the next value or the end of all."""
        cursor, closers = self._cursor, self._closers
        while closers:
            yield from cursor.spaces()
            char = yield from cursor.peek()
            if char == ",":
                cursor.advance()
                yield from cursor.spaces()
                if (yield from cursor.peek()) != closers[-1]:
                    write(", ")
                    if closers[-1] == "}":
                        yield from self.key(write)
                    return
                self._note("a comma before a closing bracket was dropped")
            elif char == closers[-1]:
                cursor.advance()
                write("}" if closers.pop() == "}" else "]")
            elif self._end is not None and (yield from cursor.looking_at(self._end)):
                self._note("missing closing brackets were added")
                while closers:
                    write("}" if closers.pop() == "}" else "]")
            else:
                raise unexpected(char, f"',' or {closers[-1]!r}")

    def _escape(self, quote: str, write: Write) -> Need[None]:
        """Read what follows a backslash."""
        cursor = self._cursor
        char = yield from cursor.peek()
        if char == "":
            raise CallError(CUT, cut=True)
        if char in '"\\/bfnrt':
            cursor.advance()
            write("\\" + char)
        elif char == "'":
            if quote != "'":
                self._note(_BAD_QUOTE_ESCAPE)
            cursor.advance()
            write("'")
        elif char == "u":
            cursor.advance()
            yield from self._code(write)
        else:
            self._note(_BAD_ESCAPE)
            write("\\\\")

    def _code(self, write: Write) -> Need[None]:
        r"""Read what follows `\u`."""
        digits = yield from self._digits()
        if len(digits) < 4:
            self._note(_BAD_ESCAPE)
            write("\\\\u" + digits)
            return
        code = int(digits, 16)
        while 0xD800 <= code < 0xDC00 and (yield from self._cursor.accept("\\u")):
            digits = yield from self._digits()
            low = int(digits, 16) if len(digits) == 4 else 0
            if 0xDC00 <= low < 0xE000:
                write(chr(0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)))
                return
            self._half(write)
            if len(digits) < 4:
                self._note(_BAD_ESCAPE)
                write("\\\\u" + digits)
                return
            code = low
        if 0xD800 <= code < 0xE000:
            self._half(write)
        else:
            write(string_piece(chr(code)))

    def _digits(self) -> Need[str]:
        digits = ""
        while len(digits) < 4:
            if (yield from self._cursor.peek()) == "":
                raise CallError(CUT, cut=True)
            if not (digit := self._cursor.run(_HEX)):
                break
            digits += digit
        return digits

    def _half(self, write: Write) -> None:
        # Half of a pair is no character, and text that holds one cannot be written anywhere.
        self._note("half a surrogate pair was replaced")
        write("\ufffd")

    def _word(self, write: Write) -> Need[None]:
        word = yield from self._cursor.whole_run(_WORD)
        following = yield from self._cursor.peek()
        if not word or (following == "" and self.depth):
            raise unexpected(following, "a value")
        write(self._meaning(word))

    def _meaning(self, word: str) -> str:
        if word in ("true", "false", "null"):
            return word
        if word in _CONSTANTS:
            self._note(f"Python's {word} was read as {_CONSTANTS[word]}")
            return _CONSTANTS[word]
        if _LOOSE_NUMBER.fullmatch(word) and len(word) <= MAX_DIGITS:
            if _NUMBER.fullmatch(word):
                if math.isfinite(float(word)):
                    return word
            elif math.isfinite(float(word)):
                self._note(f"{word} is no JSON number and was read as one")
                return json.dumps(float(word) if set(word) & set(".eE") else int(word))
        if _ALMOST_NUMBER.fullmatch(word):
            self._note(f"{_short(word)} is no number and was kept as text")
            return quoted(word)
        raise CallError(f"{_short(word)} is no value")


def parse(text: str) -> tuple[object, tuple[str, ...]]:
    """Read a whole text as one JSON value, leniently; return it and what was repaired.

    Raises:
        CallError: it is no JSON, beyond repair.
    """
    cursor = Cursor()
    cursor.feed(text)
    cursor.end()
    notes: dict[str, None] = {}
    parts: list[str] = []
    reader = JsonReader(cursor, lambda note: notes.update({note: None}))
    for _ in reader.value(parts.append):
        raise AssertionError("an ended cursor never needs more")
    for _ in cursor.spaces():
        raise AssertionError("an ended cursor never needs more")
    if cursor.unread:
        raise CallError(f"{_short(cursor.unread)} follows the value")
    return json.loads("".join(parts)), tuple(notes)


def parse_strict(text: str) -> object:
    """Read a whole text as one JSON value, exactly, control characters in strings allowed.

    Raises:
        CallError: it is no JSON, or holds a number that Python cannot hold.
    """
    value, notes = parse(text)
    if set(notes) - {_RAW_CONTROL}:
        raise CallError("it is no exact JSON")
    return value


def unexpected(char: str, expected: str) -> CallError:
    """The error for finding `char`, or the end if it is empty, where something else should be."""
    if char == "":
        return CallError(CUT, cut=True)
    return CallError(f"expected {expected}, found {char!r}")


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "…")
