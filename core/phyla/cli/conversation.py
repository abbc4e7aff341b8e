"""A conversation that grows by whole steps, so that it can be sent at any time."""

from __future__ import annotations

import json
from itertools import count
from typing import TYPE_CHECKING, Any

from phyla.cli.json_file import os_reason, read_json_list
from phyla.cli.kept import Kept
from phyla.cli.media_input import kept
from phyla.errors import RequestError
from phyla.messages import (
    Audio,
    Image,
    Message,
    Reasoning,
    ToolCall,
    ToolResult,
    Video,
    read_messages,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from phyla.messages import Medium


class Conversation:
    """A system message and what follows it: questions, answers, tool calls and their results.

    Args:
        system: the system message.
        allow_http: whether what a loaded conversation names by a URL is fetched.
    """

    def __init__(self, system: str | None = None, *, allow_http: bool = False) -> None:
        self.system = system
        self._allow_http = allow_http
        self._turns: list[Message] = []

    def asking(self, *new: Message) -> list[Message]:
        """The messages so far with new ones after them, which are not kept."""
        return [*self.messages, *new]

    def add(self, *messages: Message) -> None:
        """Keep messages: what was asked, and the answer to it."""
        self._turns.extend(messages)

    def reset(self) -> None:
        """Forget the turns; the system message stays."""
        self._turns.clear()

    @property
    def messages(self) -> list[Message]:
        """The messages, the system's first."""
        if self.system is None:
            return list(self._turns)
        return [Message(role="system", content=self.system), *self._turns]

    def save(self, file: Path) -> None:
        """Write the messages as a JSON list that `read_messages` takes, and `load`.

        A message has the OpenAI form where that keeps all of it, and its blocks otherwise. A file
        is named by its path if it still holds what was sent; what it held is written otherwise, as
        is what was fetched.

        Raises:
            RequestError: the file cannot be written.
        """
        listed = [_written(_with_media(message, _named)) for message in self.messages]
        try:
            file.expanduser().write_text(
                json.dumps(listed, ensure_ascii=False, indent=2) + "\n", encoding="utf-8"
            )
        except (OSError, RuntimeError) as error:  # RuntimeError: `~name` of nobody's
            raise RequestError(
                f"{file} cannot be written: {os_reason(error)}.", field="file", found=str(file)
            ) from error

    def load(self, file: Path) -> None:
        """Go on with the messages of a file, in place of those that are here.

        The files that they name are read now.

        Raises:
            RequestError: the file cannot be read, a message in it is malformed, or a file that it
                names is gone; the conversation is as it was.
        """
        listed: list[Any] = read_json_list(file, of="messages")
        places = count()

        def keep(block: Medium) -> Medium:
            return kept(block, allow_http=self._allow_http, index=next(places))

        messages = [_with_media(message, keep) for message in read_messages(listed)]
        has_system = messages[0].role == "system"
        self.system = messages.pop(0).text if has_system else None
        self._turns = messages


def _with_media(message: Message, change: Callable[[Medium], Medium]) -> Message:
    """The message with its images, audio and videos changed."""
    if not message.media:
        return message
    blocks = tuple(
        change(block) if isinstance(block, Image | Audio | Video) else block
        for block in message.blocks
    )
    return message.model_copy(update={"content": blocks})


def _named(block: Medium) -> Medium:
    source = block.source
    if not isinstance(source, Kept):
        return block
    return block.model_copy(update={"source": source.as_text()})


def _written(message: Message) -> dict[str, Any]:
    fields = _openai(message)
    if Message.model_validate(fields) == message:
        return fields
    return message.model_dump(mode="json", exclude=None if message.name else {"name"})


def _openai(message: Message) -> dict[str, Any]:
    fields: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.name is not None:
        fields["name"] = message.name
    for block in message.blocks:
        match block:
            case Reasoning(text=text):
                fields["reasoning_content"] = fields.get("reasoning_content", "") + text
            case ToolCall(id=call_id, name=name, arguments=arguments):
                text = json.dumps(arguments, ensure_ascii=False)
                function = {"name": name, "arguments": text}
                call = {"id": call_id, "type": "function", "function": function}
                fields.setdefault("tool_calls", []).append(call)
            case ToolResult(call_id=call_id, text=text):
                fields |= {"content": text, "tool_call_id": call_id}
            case _:
                pass
    return fields
