"""A place in a text that is still being written, for parsers that are generators.

A parser yields whenever it needs more text than there is, and never looks at how much happens to be
there: so it decides the same however the text is cut. Knows no format.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import TypeAlias, TypeVar

T = TypeVar("T")

Need: TypeAlias = Generator[None, None, T]
"""A computation that yields while it needs more text and returns a T."""

_SPACES = re.compile(r"[ \t\r\n]+")


class Cursor:
    """Reads a streamed text once, forwards; remembers what was read since the last `cut`.

    Only the unread text is copied when more arrives, so the cost is linear as long as a parser
    reads on rather than looking ahead far.
    """

    def __init__(self) -> None:
        self._read: list[str] = []  # since the last cut, without the window's own part
        self._before = 0  # the length of `_read`
        self._window = ""
        self._at = 0
        self._ended = False

    def feed(self, text: str) -> None:
        """Add text at the end."""
        self._read.append(self._window[: self._at])
        self._before += self._at
        self._window = self._window[self._at :] + text
        self._at = 0

    def end(self) -> None:
        """Say that no more text comes."""
        self._ended = True

    @property
    def unread(self) -> str:
        """What was fed and not read."""
        return self._window[self._at :]

    @property
    def offset(self) -> int:
        """How many characters were read since the last cut."""
        return self._before + self._at

    @property
    def raw(self) -> str:
        """What was read since the last cut."""
        return "".join(self._read) + self._window[: self._at]

    def cut(self) -> str:
        """Return what was read since the last cut, and forget it."""
        raw = self.raw
        self._read, self._before = [], 0
        self._window, self._at = self.unread, 0
        return raw

    def back_to(self, offset: int) -> None:
        """Read again from `offset`; costs as much as all that was read since the last cut."""
        raw = self.raw
        self._window = raw[offset:] + self.unread
        self._read, self._before, self._at = [raw[:offset]], offset, 0

    def advance(self, count: int = 1) -> None:
        """Read `count` characters that are known to be there."""
        self._at += count

    def run(self, pattern: re.Pattern[str]) -> str:
        """Read what is there of a run of `pattern`, which must match character by character."""
        found = pattern.match(self._window, self._at)
        if found is None:
            return ""
        self._at = found.end()
        return found.group()

    def peek(self) -> Need[str]:
        """The next character, or "" at the end."""
        while self._at == len(self._window):
            if self._ended:
                return ""
            yield
        return self._window[self._at]

    def looking_at(self, marker: str) -> Need[bool]:
        """Whether `marker` comes next; waits only while what is there may still become it."""
        while True:
            if self._window.startswith(marker, self._at):
                return True
            here = self._window[self._at : self._at + len(marker)]
            if self._ended or not marker.startswith(here):
                return False
            yield

    def accept(self, marker: str) -> Need[bool]:
        """Read `marker` if it comes next, and say whether it did."""
        if (yield from self.looking_at(marker)):
            self._at += len(marker)
            return True
        return False

    def cut_short(self, *markers: str) -> bool:
        """Whether the text ended inside one of `markers`."""
        rest = self.unread
        return self._ended and rest != "" and any(marker.startswith(rest) for marker in markers)

    def whole_run(self, pattern: re.Pattern[str]) -> Need[str]:
        """Read all of a run of `pattern`, waiting for its end."""
        parts: list[str] = []
        while True:
            parts.append(self.run(pattern))
            if self._at < len(self._window) or self._ended:
                return "".join(parts)
            yield

    def spaces(self) -> Need[str]:
        """Read blanks and newlines."""
        return (yield from self.whole_run(_SPACES))

    def at(self, ahead: int = 0) -> Need[str]:
        """The character that many characters ahead, or "" past the end."""
        while self._at + ahead >= len(self._window):
            if self._ended:
                return ""
            yield
        return self._window[self._at + ahead]

    def sees(self, marker: str, ahead: int = 0) -> Need[bool]:
        """Whether `marker` stands that many characters ahead; a mismatch is known at once."""
        while True:
            start = self._at + ahead
            if self._window.startswith(marker, start):
                return True
            if self._ended or not marker.startswith(self._window[start : start + len(marker)]):
                return False
            yield

    def span(self, pattern: re.Pattern[str], ahead: int = 0, limit: int = 1 << 30) -> Need[int]:
        """How long a run of `pattern` is that many characters ahead, at most `limit`."""
        done = 0
        while True:
            start = self._at + ahead
            # Nothing matches beyond the end; `match` would begin at the end instead.
            if start <= len(self._window):
                found = pattern.match(self._window, start + done, start + limit)
                done = found.end() - start if found else done
            if done >= limit or self._ended or start + done < len(self._window):
                return done
            yield

    def glance(self, count: int, ahead: int = 0) -> str:
        """So many characters from that many characters ahead on, of those that are there."""
        return self._window[self._at + ahead : self._at + ahead + count]
