"""The loop of `phyla chat`: a line in, a reply or a command's effect out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from phyla.cli import failures
from phyla.cli.conversation import Conversation
from phyla.cli.streaming import follow, speed
from phyla.errors import CancelledError, RequestError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from phyla.engine.engine import Engine
    from phyla.options import Options

_HELP = """\
/reset         forget the conversation; the system message stays
/system TEXT   set the system message; without TEXT remove it
/save FILE     write the conversation to FILE as JSON
/help          show this
/exit          leave (so does Ctrl-D)
Ctrl-C stops a reply; what came of it is kept. Start with // to say something that starts with /."""


class Talk:
    """A conversation at a keyboard, or with lines that are piped in."""

    def __init__(
        self,
        engine: Engine,
        *,
        system: str | None,
        thinking: bool | None,
        options: Options,
        stats: bool,
        debug: bool,
    ) -> None:
        self._engine = engine
        self._conversation = Conversation(system)
        self._thinking = thinking
        self._options = options
        self._stats = stats
        self._debug = debug

    def run(self) -> None:
        """Go on until the input ends or /exit."""
        if sys.stdin.isatty():
            failures.notice(f"{self._engine.name}; /help lists the commands, Ctrl-D leaves.")
        for line in _lines():
            if line == "/exit":
                return
            try:
                self._take(line)
            except (BrokenPipeError, typer.Exit):
                raise  # nobody reads any more
            except KeyboardInterrupt:  # pressed twice: not even waiting for what came of the reply
                failures.notice("(stopped; the message is not kept)")
            except Exception as error:  # noqa: BLE001 (whatever it is, the conversation goes on)
                failures.report(error, debug=self._debug)

    def _take(self, line: str) -> None:
        if line.startswith("//"):
            self._say(line[1:])
        elif line.startswith("/"):
            name, _, rest = line.partition(" ")
            self._command(name, rest.strip())
        elif line:
            self._say(line)

    def _command(self, name: str, rest: str) -> None:
        match name:
            case "/help":
                failures.notice(_HELP)
            case "/reset":
                self._conversation.reset()
                failures.notice("The conversation is forgotten.")
            case "/system":
                self._conversation.system = rest or None
                failures.notice(
                    "The system message is set." if rest else "There is no system message now."
                )
            case "/save":
                if not rest:
                    raise RequestError("/save needs a file's name.", field="file")
                self._conversation.save(Path(rest))
                failures.notice(f"Saved {len(self._conversation.messages)} messages to {rest}.")
            case _:
                raise RequestError(
                    f"There is no command {name}.", found=name, hint="/help lists the commands."
                )

    def _say(self, text: str) -> None:
        try:
            reply = follow(
                lambda: self._engine.stream(
                    self._conversation.asking(text), thinking=self._thinking, options=self._options
                )
            )
        except CancelledError:
            reply = None
        if reply is None or (reply.finish_reason == "cancelled" and not reply.text):
            failures.notice("(stopped before the answer began; the message is not kept)")
            return
        if reply.finish_reason == "cancelled":
            failures.notice("(stopped)")
        elif reply.finish_reason in ("length", "context_full"):
            failures.notice(f"(cut short: {reply.finish_reason})")
        self._conversation.add(text, reply.text, reasoning=reply.reasoning)
        if self._stats:
            failures.notice(speed(reply))


def _lines() -> Iterator[str]:
    """What the user enters, line by line; Ctrl-C drops a line, Ctrl-D ends."""
    if not sys.stdin.isatty():
        for line in sys.stdin:
            yield line.strip()
        return
    import readline  # noqa: F401  # pyright: ignore[reportUnusedImport]  (makes input() editable)

    while True:
        try:
            line = input("> ")
        except EOFError:
            typer.echo(err=True)
            return
        except KeyboardInterrupt:
            typer.echo(err=True)
            failures.notice("(Ctrl-D or /exit leaves)")
            continue
        yield line.strip()
