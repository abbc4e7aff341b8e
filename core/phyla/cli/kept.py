"""The content of a file that was sent, so that a conversation goes on when the file is gone."""

from __future__ import annotations

import base64
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import Self


class Kept(bytes):
    """A content, and where it came from.

    Attributes:
        name: what people call it.
        path: the whole path of the file it was read from; None of what was fetched.
    """

    name: str
    path: Path | None

    @classmethod
    def of(cls, content: bytes, *, name: str, path: Path | None) -> Self:
        """Keep a content."""
        kept = cls(content)
        kept.name, kept.path = name, path
        return kept

    def as_text(self) -> str:
        """A source that gives it back: the path if the file still holds it, else a data: URL."""
        with suppress(OSError):
            if self.path is not None and self.path.read_bytes() == self:
                return str(self.path)
        return data_url(self)


def data_url(content: bytes) -> str:
    """A content as text."""
    return "data:;base64," + base64.b64encode(content).decode("ascii")
