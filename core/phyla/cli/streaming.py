"""Waits for a reply and shows it while it is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phyla.cli.interrupt import ctrl_c
from phyla.errors import CancelledError
from phyla.events import Finished

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from phyla.cli.screen import Screen
    from phyla.engine.stream import Stream
    from phyla.events import Reply


def follow(
    start: Callable[[], Stream],
    screen: Screen | None,
    *,
    leave: Callable[[], NoReturn] | None = None,
) -> Reply:
    """Start a reply, show it on a screen if there is one, and wait for its end.

    Ctrl-C cancels it, and the reply so far is returned with the finish reason `cancelled`.

    Args:
        start: starts it.
        screen: where to show it.
        leave: what Ctrl-C does instead as long as nothing of the reply has come; the engine looks
            at a cancelled request only between two pieces of its prompt.

    Raises:
        CancelledError: it was cancelled before its prompt was read.
        PhylaError: whatever goes wrong in the engine.
    """
    begun = False
    try:
        with ctrl_c() as interruption, start() as stream:

            def stop() -> None:
                if leave is not None and not begun:
                    leave()
                stream.cancel()

            interruption.then(stop)
            for event in stream:
                begun = True
                if screen is not None:
                    screen.show(event)
                if isinstance(event, Finished):
                    return event.reply
    finally:
        if screen is not None:
            screen.leave()
    raise CancelledError("The stream ended without a reply.")


def speed(reply: Reply) -> str:
    """A reply's counts and rates in one line."""
    usage, timings = reply.usage, reply.timings
    thought = f" ({usage.reasoning_tokens} of reasoning)" if usage.reasoning_tokens else ""
    cached = f" ({usage.cached_tokens} remembered)" if usage.cached_tokens else ""
    read = usage.prompt_tokens - usage.cached_tokens
    parts = [
        f"prompt {usage.prompt_tokens} tokens{cached}, {_rate(read, timings.prefill)}",
        # The first token comes with the prompt; the clock of the others starts there.
        f"reply {usage.completion_tokens} tokens{thought}, "
        f"{_rate(usage.completion_tokens - 1, timings.decode)}",
        f"first token after {timings.queue + timings.prefill:.2f} s",
        f"seed {reply.seed}",
        f"ended by {reply.finish_reason}",
    ]
    return "; ".join(parts)


def _rate(count: int, seconds: float) -> str:
    return f"{count / seconds:.1f} tokens/s" if count > 0 and seconds > 0 else "- tokens/s"
