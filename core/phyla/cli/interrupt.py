"""Gives Ctrl-C a meaning of its own for a while."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Interruption:
    """What the first Ctrl-C does."""

    def __init__(self) -> None:
        self._pressed = False
        self._action: Callable[[], None] | None = None

    def then(self, action: Callable[[], None]) -> None:
        """Do this on Ctrl-C; at once if it was pressed already."""
        self._action = action
        if self._pressed:
            action()

    def press(self) -> None:
        """Take note of a Ctrl-C.

        Raises:
            KeyboardInterrupt: it is the second.
        """
        if self._pressed:
            raise KeyboardInterrupt
        self._pressed = True
        if self._action is not None:
            self._action()


@contextmanager
def ctrl_c() -> Iterator[Interruption]:
    """Inside, the first Ctrl-C does what the caller says, and the second interrupts as usual.

    A handler, and not an exception that is caught: an exception could strike while a request is
    handed to the engine, which then works on with nobody to stop it, or lose an event that has
    arrived and is not printed yet.

    Python hears of signals on the main thread only; elsewhere Ctrl-C keeps its meaning.
    """
    interruption = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return
    before = signal.signal(signal.SIGINT, lambda number, frame: interruption.press())
    try:
        yield interruption
    finally:
        signal.signal(signal.SIGINT, before)
