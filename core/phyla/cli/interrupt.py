"""Gives Ctrl-C a meaning of its own for a while."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def ctrl_c(action: Callable[[], None]) -> Iterator[threading.Event]:
    """Inside, the first Ctrl-C calls `action`, and the second interrupts as usual.

    Gives an event that is set by the first. A handler, and not an exception that is caught: an
    exception could strike between an event's arrival and its being printed, and lose it.

    Python hears of signals on the main thread only; elsewhere Ctrl-C keeps its meaning.
    """
    pressed = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield pressed
        return

    def handle(signal_number: int, frame: object) -> None:
        if pressed.is_set():
            raise KeyboardInterrupt
        pressed.set()
        action()

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)
