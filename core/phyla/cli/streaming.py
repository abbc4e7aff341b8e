"""Writes a reply to standard output while it is made."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import typer
from typing_extensions import assert_never

from phyla.cli.failures import notice
from phyla.cli.interrupt import ctrl_c
from phyla.errors import CancelledError
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
    from collections.abc import Callable

    from phyla.engine.stream import Stream
    from phyla.events import Event, Reply


def follow(start: Callable[[], Stream], *, show: bool = True) -> Reply:
    """Start a reply and wait for it; print its text as it comes, and end the line.

    Only the answer goes to standard output. Reasoning is shown on standard error, if that is a
    terminal, and tool calls are told of there.

    Ctrl-C cancels it, and the reply so far is returned with the finish reason `cancelled`.

    Raises:
        CancelledError: it was cancelled before its prompt was read.
        PhylaError: whatever goes wrong in the engine.
    """
    screen = _Screen() if show else None
    with ctrl_c() as interruption, start() as stream:
        interruption.then(stream.cancel)
        for event in stream:
            if screen is not None:
                screen.show(event)
            if isinstance(event, Finished):
                return event.reply
    raise CancelledError("The stream ended without a reply.")


class _Screen:
    """Where the pieces of one reply go."""

    def __init__(self) -> None:
        self._last = ""
        self._reasoning = False
        self._shows_reasoning = sys.stderr.isatty()

    def show(self, event: Event) -> None:
        match event:
            case TextDelta(text=text):
                self._end_reasoning()
                self._write(text)
            case ReasoningDelta(text=text):
                if self._shows_reasoning:
                    self._reasoning = True
                    typer.echo(typer.style(text, dim=True), nl=False, err=True)
            case ToolCallFinished(call=call):
                self._end_reasoning()
                arguments = json.dumps(call.arguments, ensure_ascii=False)
                notice(f"(wants to call {call.name} with {arguments})")
            case ToolCallFailed(error=error):
                self._end_reasoning()
                notice(f"(wants to call a tool in words that cannot be read: {error.raw})")
            case ToolCallStarted() | ToolCallDelta():
                pass
            case Finished():
                self._end_reasoning()
                if not self._last.endswith("\n"):
                    self._write("\n")
            case _:
                assert_never(event)

    def _write(self, text: str) -> None:
        if text:
            self._last = text
            sys.stdout.write(text)
            sys.stdout.flush()

    def _end_reasoning(self) -> None:
        if self._reasoning:
            self._reasoning = False
            typer.echo("\n", err=True)


def speed(reply: Reply) -> str:
    """A reply's counts and rates in one line."""
    prompt, completion = reply.usage.prompt_tokens, reply.usage.completion_tokens
    first = reply.timings.queue + reply.timings.prefill
    parts = [
        f"prompt {prompt} tokens, {_rate(prompt, reply.timings.prefill)}",
        # The first token comes with the prompt; the clock of the others starts there.
        f"reply {completion} tokens, {_rate(completion - 1, reply.timings.decode)}",
        f"first token after {first:.2f} s",
        f"seed {reply.seed}",
        f"ended by {reply.finish_reason}",
    ]
    return "; ".join(parts)


def _rate(count: int, seconds: float) -> str:
    return f"{count / seconds:.1f} tokens/s" if count > 0 and seconds > 0 else "- tokens/s"
