"""Makes standard input, output and error fit for use, whatever the program was started with."""

from __future__ import annotations

import io
import os
import sys


def prepare_streams() -> None:
    """Put the null device where a stream is closed, and keep odd characters from ending a reply."""
    if None in (sys.stdin, sys.stdout, sys.stderr):
        _fill_closed_descriptors()
        # Python leaves None for a stream whose descriptor was closed at its start.
        if sys.stdin is None:
            sys.stdin = _null_device("r")
        if sys.stdout is None:
            sys.stdout = _null_device("w")
        if sys.stderr is None:
            sys.stderr = _null_device("w")
    for stream in (sys.stdout, sys.stderr):
        # A reply may hold characters that a terminal's encoding lacks; that must not end it.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _fill_closed_descriptors() -> None:
    # Otherwise the next file that is opened, perhaps a model's, would be somebody's standard error.
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


def _null_device(mode: str) -> io.TextIOWrapper:
    stream = open(os.devnull, mode, encoding="utf-8")  # noqa: SIM115, PTH123 (open until the end)
    assert isinstance(stream, io.TextIOWrapper)
    return stream
