"""How a conversation is put to a model: with which tools, thinking and options."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import typer

from phyla.cli.failures import notice
from phyla.cli.json_file import read_json_list
from phyla.errors import RequestError
from phyla.messages import Tool, read_tools
from phyla.options import read_options

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from typing_extensions import Self

    from phyla.engine.engine import Engine
    from phyla.engine.stream import Stream
    from phyla.family import ThinkingLike
    from phyla.messages import Message
    from phyla.options import Options


@dataclass(frozen=True, kw_only=True)
class Ask:
    """What goes to the engine next to the messages; the fields are those of `engine.stream`."""

    tools: tuple[Tool, ...] = ()
    tool_choice: str = "auto"
    thinking: ThinkingLike = None
    options: Options

    def stream(self, engine: Engine, messages: Sequence[Message]) -> Stream:
        """Start a reply.

        Raises:
            PhylaError: as `engine.stream`.
        """
        return engine.stream(
            messages,
            tools=self.tools or None,
            tool_choice=self.tool_choice,
            thinking=self.thinking,
            options=self.options,
        )

    def check(self, engine: Engine, messages: Sequence[Message]) -> None:
        """Find out before the first reply whether the model can be asked in this way.

        Tools that the chat template leaves out are no error, and are told of.

        Raises:
            PhylaError: as `engine.encode`.
        """
        if self.thinking is None and not self.tools and self.tool_choice == "auto":
            return
        asked = engine.encode(
            messages,
            tools=self.tools or None,
            tool_choice=self.tool_choice,
            thinking=self.thinking,
        )
        if not self.tools or self.tool_choice == "none":
            return
        bare = engine.encode(messages, thinking=self.thinking)
        if asked.text.removesuffix(asked.seed) == bare.text:
            notice("(the chat template of this model leaves tools out: it will not know of them)")

    def after_results(self) -> Self:
        """For going on after a tool's result: a call that was asked for has been made."""
        return self if self.tool_choice == "none" else replace(self, tool_choice="auto")


# Those of `phyla.Options` that are options of `run` and `chat` too, by the same names.
_REPLY_OPTIONS = (
    "max_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "stop", "reasoning_budget",
)  # fmt: skip


def read_reply_options(context: typer.Context) -> Options:
    """What the options of a running command say about the reply.

    Raises:
        typer.BadParameter: one is out of range.
    """
    given = {name: context.params[name] for name in _REPLY_OPTIONS}
    given["stop"] = tuple(given["stop"] or ()) or None
    try:
        return read_options(given)
    except RequestError as error:
        option = (error.field or "").replace("[", ".").partition(".")[0]
        name = option.replace("_", "-")
        raise typer.BadParameter(error.message, param_hint=f"--{name}") from None


def read_thinking(*, think: bool | None, effort: str | None) -> ThinkingLike:
    """What `--think`, `--no-think` and `--effort` ask for together.

    Raises:
        typer.BadParameter: no thinking, and with some effort.
    """
    if effort is None:
        return think
    if think is False:
        raise typer.BadParameter("--no-think leaves no effort to choose", param_hint="--effort")
    return effort


def read_tools_file(file: Path | None) -> tuple[Tool, ...]:
    """The tools that a file lists, plain or in the OpenAI form; none without a file.

    Raises:
        RequestError: the file cannot be read or a tool in it is malformed; the text says where.
    """
    if file is None:
        return ()
    listed = read_json_list(file, of="tools")
    for place, item in enumerate(listed):
        if not isinstance(item, dict):
            raise RequestError(
                f"{file}: tools[{place}] should be an object, found {item!r}.",
                field=f"tools[{place}]",
                expected="an object with a name, a description and parameters",
                found=item,
            )
    try:
        return read_tools([item for item in listed if isinstance(item, dict)])
    except RequestError as error:
        raise RequestError(
            f"{file}: {error.message}",
            field=error.field,
            expected=error.expected,
            found=error.found,
            hint=error.hint,
        ) from None
