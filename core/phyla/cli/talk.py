"""The loop of `phyla chat`: a line in, a reply or a command's effect out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from phyla.cli import failures
from phyla.cli.conversation import Conversation
from phyla.cli.file_names import file_names, name_of
from phyla.cli.input_lines import InputLines
from phyla.cli.path_completion import complete_path
from phyla.cli.pending import COMMANDS, Pending
from phyla.cli.screen import Screen
from phyla.cli.streaming import follow, speed
from phyla.errors import CancelledError, RequestError
from phyla.messages import Message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from phyla.cli.ask import Ask
    from phyla.cli.media_wishes import Wishes
    from phyla.engine.engine import Engine
    from phyla.events import Reply
    from phyla.messages import Medium, ToolCall

_HELP = """\
/image FILE    send a picture with the next message; several may be added
/audio FILE    the same with a sound, or the sound of a video
/video FILE    the same with a video, without its sound
/drop          forget what was to go with the next message
/reset         forget the conversation; the system message stays
/system TEXT   set the system message; without TEXT remove it
/save FILE     write the conversation to FILE as JSON
/load FILE     go on with the conversation in FILE
/help          show this
/exit          leave (so does Ctrl-D)
Ctrl-C stops a reply; what came of it is kept. Start with // to say something that starts with /."""


class _UnknownCommandError(RequestError):
    """A line that starts with a slash names no command: nothing is done, and nothing half done."""


class Talk:
    """A conversation at a keyboard, or with lines that are piped in."""

    def __init__(
        self,
        engine: Engine,
        *,
        system: str | None,
        ask: Ask,
        show_reasoning: bool | None,
        stats: bool,
        attached: Sequence[Medium],
        allow_http: bool,
        wishes: Wishes,
        debug: bool,
    ) -> None:
        self._engine = engine
        self._conversation = Conversation(system, allow_http=allow_http)
        self._attached = attached
        self._pending = Pending(engine, allow_http=allow_http, wishes=wishes)
        self._ask = ask
        self._show_reasoning = show_reasoning
        self._stats = stats
        self._debug = debug
        self._lines = InputLines(complete=complete_path)
        self._explained_results = False

    def run(self) -> None:
        """Go on until the input ends or /exit.

        At a keyboard an error is told, and the conversation goes on. Otherwise nobody is there to
        mend a command that failed, which ends it all; that a message failed, or that there is no
        such command, is told by the exit code.

        Raises:
            PhylaError: the model cannot be asked as it is to be, or a command that was piped in
                failed.
            typer.Exit: a message that was piped in failed, or a command that is none.
        """
        self._ask.check(self._engine, self._conversation.asking(_user("Hello")))
        if self._lines.keyboard:
            failures.notice(f"{self._engine.name}; /help lists the commands, Ctrl-D leaves.")
        if self._attached:
            failures.notice(self._pending.take(self._attached))
        failed = False
        while (line := self._next_line()) is not None and line != "/exit":
            try:
                self._take(line)
            except (BrokenPipeError, typer.Exit):
                raise  # nobody reads any more
            except KeyboardInterrupt:  # pressed twice: not even waiting for what came of the reply
                failures.notice("(stopped; the message is not kept)")
            except Exception as error:
                said = not line.startswith("/") or line.startswith("//")
                unknown = isinstance(error, _UnknownCommandError)
                if not (said or unknown or self._lines.keyboard):
                    raise
                failed = True
                failures.report(error, debug=self._debug)
                if said:
                    self._tell_what_waits()
        if failed and not self._lines.keyboard:
            raise typer.Exit(1)

    def _tell_what_waits(self) -> None:
        if waiting := self._pending.listed():
            failures.notice(f"(still with the next message: {waiting}; /drop forgets it)")

    def _next_line(self) -> str | None:
        """What the user enters; Ctrl-C drops a line, Ctrl-D ends."""
        while True:
            try:
                return self._lines.read(self._pending.prompt)
            except KeyboardInterrupt:
                failures.notice("(Ctrl-D or /exit leaves)")

    def _take(self, line: str) -> None:
        if line.startswith("//"):
            self._say(line[1:])
        elif line.startswith("/"):
            name, _, rest = line.partition(" ")
            self._command(name, rest.strip())
        elif line:
            self._say(line)

    def _command(self, name: str, rest: str) -> None:
        conversation = self._conversation
        match name:
            case "/help":
                failures.notice(_HELP)
            case "/image" | "/audio" | "/video":
                failures.notice(self._pending.add(COMMANDS[name], rest))
            case "/drop":
                failures.notice(self._pending.drop())
            case "/reset":
                conversation.reset()
                failures.notice("The conversation is forgotten.")
                self._tell_what_waits()
            case "/system":
                conversation.system = rest or None
                failures.notice(
                    "The system message is set." if rest else "There is no system message now."
                )
            case "/save":
                conversation.save(_file(name, rest))
                failures.notice(f"Saved {len(conversation.messages)} messages to {rest}.")
            case "/load":
                conversation.load(_file(name, rest))
                failures.notice(f"Loaded {len(conversation.messages)} messages from {rest}.")
            case _:
                raise _UnknownCommandError(
                    f"There is no command {name}.", found=name, hint="/help lists the commands."
                )

    def _say(self, text: str) -> None:
        """Send a message, and go on as long as the model calls tools and gets results."""
        ask, new = self._ask, [self._pending.message(text)]
        while new:
            reply = self._answer(ask, new)
            if reply is None:
                return
            new = self._results(reply.tool_calls)
            ask = ask.after_results()

    def _answer(self, ask: Ask, new: Sequence[Message]) -> Reply | None:
        """The reply to new messages, which are kept with it; None if it was stopped."""
        asking = self._conversation.asking(*new)
        names = [name_of(block) for message in asking for block in message.media]
        try:
            with file_names(names):
                reply = follow(
                    lambda: ask.stream(self._engine, asking), Screen(reasoning=self._show_reasoning)
                )
        except CancelledError:
            reply = None
        cancelled = reply is None or reply.finish_reason == "cancelled"
        if reply is None or (cancelled and not (reply.text or reply.tool_calls)):
            failures.notice("(stopped before the answer began; the message is not kept)")
            return None
        if cancelled:
            failures.notice("(stopped)")
        elif reply.finish_reason in ("length", "context_full"):
            failures.notice(f"(cut short: {reply.finish_reason})")
        self._conversation.add(*new, reply.message)
        self._pending.sent()
        if self._stats:
            failures.notice(speed(reply))
        return None if cancelled else reply

    def _results(self, calls: Sequence[ToolCall]) -> list[Message]:
        """What the tools answer, as the user enters it; a call may go without a result."""
        if calls and self._lines.keyboard and not self._explained_results:
            failures.notice(
                "(Type what the tool answers. An empty line gives no result; Ctrl-C gives none at all.)"
            )
            self._explained_results = True
        results: list[Message] = []
        for place, call in enumerate(calls, 1):
            which = f" ({place} of {len(calls)})" if len(calls) > 1 else ""
            try:
                text = self._lines.read(f"{call.name}{which} answers> ")
            except KeyboardInterrupt:
                return []
            if text:
                results.append(_result(call, text))
        return results


def _file(command: str, name: str) -> Path:
    if not name:
        raise RequestError(f"{command} needs a file's name.", field="file")
    return Path(name)


def _user(text: str) -> Message:
    return Message(role="user", content=text)


def _result(call: ToolCall, text: str) -> Message:
    # The OpenAI form, so that it is saved as such.
    return Message.model_validate(
        {"role": "tool", "content": text, "tool_call_id": call.id, "name": call.name}
    )
