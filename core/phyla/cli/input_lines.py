"""Where the lines of a conversation come from: a keyboard, or a pipe."""

from __future__ import annotations

import sys

import typer


class InputLines:
    """Standard input, line by line."""

    def __init__(self) -> None:
        self.keyboard = sys.stdin.isatty()
        """Whether somebody types."""
        if self.keyboard:
            import readline  # noqa: F401  # pyright: ignore[reportUnusedImport]  (makes input() editable)

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
