"""Where the lines of a conversation come from: a keyboard, or a pipe."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def _nothing(line: str) -> Sequence[str]:
    return ()


class InputLines:
    """Standard input, line by line.

    Args:
        complete: what the Tab key may make of a line, at a keyboard.
    """

    def __init__(self, *, complete: Callable[[str], Sequence[str]] = _nothing) -> None:
        self.keyboard = sys.stdin.isatty()
        """Whether somebody types."""
        if self.keyboard:
            _edit(complete)

    def read(self, prompt: str) -> str | None:
        """The next line without the blanks around it, or None at the end of the input.

        The prompt is for a keyboard only.

        Raises:
            KeyboardInterrupt: Ctrl-C at a keyboard.
        """
        if not self.keyboard:
            line = sys.stdin.readline()
            return line.strip() if line else None
        try:
            if sys.stdout.isatty():
                return input(prompt).strip()
            # `input` would write its prompt among the answers.
            typer.echo(prompt, nl=False, err=True)
            return input().strip()
        except EOFError:
            typer.echo(err=True)
            return None
        except KeyboardInterrupt:
            typer.echo(err=True)
            raise


def _edit(complete: Callable[[str], Sequence[str]]) -> None:
    """Make `input` editable, with the Tab key for completion."""
    import readline

    def nth(line: str, place: int) -> str | None:
        found = complete(line)
        return found[place] if place < len(found) else None

    readline.set_completer(nth)
    readline.set_completer_delims("")  # a path may hold blanks: the whole line is completed
    libedit = "libedit" in (readline.__doc__ or "")
    readline.parse_and_bind("bind ^I rl_complete" if libedit else "tab: complete")
