"""Hands text out in larger pieces. Knows no tokens but how many came."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from phyla.errors import RequestError
from phyla.events import TextDelta
from phyla.validation import shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from phyla.events import Event


class Flush:
    """Joins pieces of text until enough tokens have come, or enough time has passed.

    Time is looked at when a token comes; other events are handed on at once, after the text before
    them.

    Args:
        tokens: how many.
        seconds: how much time; None for any.
        clock: tells seconds.

    Raises:
        RequestError: a number is out of range.
    """

    def __init__(
        self,
        *,
        tokens: int = 1,
        seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if type(tokens) is not int or tokens < 1:
            raise _out_of_range("flush_tokens", "a positive number of tokens", tokens)
        if seconds is not None and (
            isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0
        ):
            raise _out_of_range("flush_seconds", "a number of seconds", seconds)
        self._tokens = tokens
        self._seconds = seconds
        self._clock = clock
        self._held: list[TextDelta] = []
        self._count = 0
        self._since = clock()

    def take(self, event: Event) -> list[Event]:
        """Take an event; return what is handed out."""
        if isinstance(event, TextDelta):
            self._held.append(event)
            return []
        return [*self.flush(), event]

    def token(self) -> list[Event]:
        """A token has come, with the events taken before; return what is handed out."""
        self._count += 1
        late = self._seconds is not None and self._clock() - self._since >= self._seconds
        return self.flush() if late or self._count >= self._tokens else []

    def flush(self) -> list[Event]:
        """Hand out what is held."""
        held, self._held, self._count, self._since = self._held, [], 0, self._clock()
        if not held:
            return []
        text = "".join(piece.text for piece in held)
        return [TextDelta(text, tuple(entry for piece in held for entry in piece.logprobs))]


def _out_of_range(field: str, expected: str, found: object) -> RequestError:
    return RequestError(
        f"{field} should be {expected}; found {shown(found)}.",
        field=field,
        expected=expected,
        found=found,
    )
