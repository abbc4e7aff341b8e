"""Where the pieces of one reply go: the answer to standard output, all else to standard error."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer
from typing_extensions import assert_never

from phyla.cli.call_block import argument_lines, call_header, failure_lines
from phyla.events import (
    Finished,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallFailed,
    ToolCallFinished,
    ToolCallStarted,
)

if TYPE_CHECKING:
    from phyla.events import Event, Reply


class Screen:
    """Shows a reply while it is made.

    What goes to standard error begins on a line of its own, also where both streams share a
    terminal; standard output gets the answer's characters and one line end, however that looks.
    """

    def __init__(self, *, reasoning: bool | None = None) -> None:
        """Begin a reply.

        Args:
            reasoning: whether to show what the model thinks; None shows it if all goes to a
                terminal.
        """
        self._shared = sys.stdout.isatty() and sys.stderr.isatty()
        self._shows_reasoning = self._shared if reasoning is None else reasoning
        self._answer_end = ""  # the answer's last piece
        self._mid_line = False  # the terminal's cursor is not where a line begins
        self._thinking = False
        self._call: int | None = None  # whose name was shown last

    def show(self, event: Event) -> None:
        """Show what an event brings."""
        match event:
            case TextDelta(text=text):
                self._end_reasoning(blank_line=True)
                self._write(text)
            case ReasoningDelta(text=text):
                self._think(text)
            case ToolCallStarted(index=index, name=name):
                self._start_call(index, name)
            case ToolCallFinished(index=index, call=call):
                if self._call != index:
                    self._start_call(index, call.name)
                for line in argument_lines(call):
                    self._tell(line)
                self._call = None
            case ToolCallFailed(error=error):
                first, *lines = failure_lines(error)
                self._tell(first, color=typer.colors.RED)
                for line in lines:
                    self._tell(line)
            case ToolCallDelta():
                pass
            case Finished(reply=reply):
                self._end(reply)
            case _:
                assert_never(event)

    def leave(self) -> None:
        """Whatever happened to the reply, others may write lines again."""
        self._end_reasoning(blank_line=False)
        self._break_line()

    def _write(self, text: str) -> None:
        if text:
            self._answer_end = text
            self._mid_line = not text.endswith("\n")
            sys.stdout.write(text)
            sys.stdout.flush()

    def _think(self, text: str) -> None:
        if not self._shows_reasoning or not text:
            return
        if not self._thinking:
            self._break_line()
            self._thinking = True
        self._mid_line = not text.endswith("\n")
        typer.echo(typer.style(text, dim=True), nl=False, err=True)

    def _end_reasoning(self, *, blank_line: bool) -> None:
        if self._thinking:
            self._thinking = False
            typer.echo("\n" * (self._mid_line + blank_line), nl=False, err=True)
            self._mid_line = False

    def _start_call(self, index: int, name: str) -> None:
        self._call = index
        self._tell(call_header(name), color=typer.colors.CYAN)

    def _tell(self, line: str, *, color: str | None = None) -> None:
        self._end_reasoning(blank_line=True)
        self._break_line()
        typer.echo(typer.style(line, fg=color, bold=True) if color else line, err=True)

    def _break_line(self) -> None:
        """Begin a line on a terminal that both streams share, without changing the answer."""
        if self._shared and self._mid_line:
            self._mid_line = False
            typer.echo(err=True)

    def _end(self, reply: Reply) -> None:
        self._end_reasoning(blank_line=False)
        if self._shared:
            ended = not self._mid_line and bool(reply.text or reply.reasoning or reply.tool_calls)
        else:
            only_calls = bool(reply.tool_calls) and not reply.text
            ended = only_calls or self._answer_end.endswith("\n")
        if not ended:
            self._write("\n")
