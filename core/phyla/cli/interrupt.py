"""Gives Ctrl-C a meaning of its own for a while. Imports nothing that takes time."""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import NoReturn

INTERRUPTED = 130  # 128 + SIGINT, as shells report it


def leave() -> NoReturn:
    """End the process at once, waiting for no thread; what was written so far gets out."""
    for stream in (sys.stdout, sys.stderr):
        # A reader that has gone, or a signal in the middle of another write.
        with suppress(OSError, ValueError, RuntimeError):
            if stream is not None:
                stream.flush()
    os._exit(INTERRUPTED)


def _leave_by_signal(number: int, frame: object) -> None:
    leave()


def leave_on_ctrl_c() -> None:
    """From here on Ctrl-C ends the process at once, in silence.

    Not where it is ignored, as in a job that a shell put into the background.
    """
    if _hears_signals() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave_by_signal)


def raise_on_ctrl_c() -> None:
    """Undo `leave_on_ctrl_c`: Ctrl-C raises KeyboardInterrupt again, so that it can be cleaned up."""
    if _hears_signals() and signal.getsignal(signal.SIGINT) is _leave_by_signal:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _hears_signals() -> bool:
    # Python hears of signals on the main thread only.
    return threading.current_thread() is threading.main_thread()


@contextmanager
def leaving_at_once(last: Callable[[], object] | None = None) -> Iterator[None]:
    """Inside, Ctrl-C ends the process at once, after `last`; for work that nothing can cancel.

    An exception would wait for it: closing an engine ends its thread, which loads the model.
    """
    before = signal.getsignal(signal.SIGINT)
    if not _hears_signals() or before is signal.SIG_IGN:
        yield
        return

    def end(number: int, frame: object) -> None:
        if last is not None:
            last()
        leave()

    signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


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
    if not _hears_signals():
        yield interruption
        return
    before = signal.signal(signal.SIGINT, lambda number, frame: interruption.press())
    try:
        yield interruption
    finally:
        signal.signal(signal.SIGINT, before)
