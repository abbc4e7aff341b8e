"""Writes a reply to standard output while it is made."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from typing_extensions import assert_never

from phyla.cli.interrupt import ctrl_c
from phyla.errors import CancelledError
from phyla.events import Finished, TextDelta

if TYPE_CHECKING:
    from collections.abc import Callable

    from phyla.engine.stream import Stream
    from phyla.events import Reply


def follow(start: Callable[[], Stream], *, show: bool = True) -> Reply:
    """Start a reply and wait for it; print its text as it comes, and end the line.

    Ctrl-C cancels it, and the reply so far is returned with the finish reason `cancelled`.

    Raises:
        CancelledError: it was cancelled before its prompt was read.
        PhylaError: whatever goes wrong in the engine.
    """
    with ctrl_c() as interruption, start() as stream:
        interruption.then(stream.cancel)
        last = ""
        for event in stream:
            match event:
                case TextDelta(text=text):
                    if show and text:
                        last = text
                        sys.stdout.write(text)
                        sys.stdout.flush()
                case Finished(reply=reply):
                    if show and not last.endswith("\n"):
                        sys.stdout.write("\n")
                        sys.stdout.flush()
                    return reply
                case _:
                    assert_never(event)
    raise CancelledError("The stream ended without a reply.")


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
