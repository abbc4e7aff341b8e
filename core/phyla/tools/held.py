"""Keeps a call back until its raw text is settled: what closes a block belongs to the last call.

Knows no format.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from phyla.tools.calls import CallError, NotACall
from phyla.tools.literals import CutOff, Mismatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from phyla.tools.calls import CallWriter
    from phyla.tools.cursor import Cursor, Need
    from phyla.tools.literals import LiteralReader

CUT_OFF = "the output ended inside the call"


class HeldCall:
    """The call that was read last.

    The raws of a block's calls join to its text: what stands between two calls goes to the second.
    """

    def __init__(self, cursor: Cursor, calls: CallWriter, reader: LiteralReader) -> None:
        self._cursor = cursor
        self._calls = calls
        self._reader = reader
        self._raw: str | None = None
        self._error: CallError | None = None

    @property
    def empty(self) -> bool:
        """Whether no call is held."""
        return self._raw is None

    def attempt(self, reading: Need[None], recover: Callable[[int], Need[None]]) -> Need[None]:
        """Read a call and hold it.

        Args:
            reading: reads it.
            recover: where it cannot be read, reads on to its end; takes how many brackets are open.
        """
        try:
            yield from reading
        except CutOff:
            self.hold(CallError(CUT_OFF, cut=True))
        except Mismatch as mismatch:
            yield from recover(mismatch.depth)
            self.hold(CallError(mismatch.reason))
        else:
            self.hold(None)

    def hold(self, error: CallError | None) -> None:
        """Hold what was read since the last call: a call, or what should be one."""
        self._raw, self._error = self._cursor.cut(), error

    def tell(self) -> None:
        """Tell of the call that is held, if one is; another one follows."""
        if self._raw is None:
            return
        raw, self._raw = self._raw, None
        if self._error is not None:
            self._calls.failed(raw, self._error)
        else:
            for note in self._reader.notes:
                self._calls.note(note)
            self._calls.parsed(raw)
        self._reader.notes.clear()

    def close(self, *, cut: bool) -> None:
        """Tell of the call that is held, with all that was read since; the block is over.

        Args:
            cut: the output ended before the block did.
        """
        if self._raw is None:
            self._raw, self._error = "", CallError("the block holds no call", cut=cut)
        self._raw += self._cursor.cut()
        self.tell()

    def prose(self, marker: str) -> None:
        """Tell that the opening marker was ordinary text, and give back all that follows it."""
        self._cursor.back_to(len(marker))
        reason = f"what follows {marker} is no call"
        self._calls.failed(self._cursor.cut(), NotACall(reason))
