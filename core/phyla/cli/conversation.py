"""A conversation that grows by whole steps, so that it can be sent at any time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from phyla.cli.json_file import os_reason, read_json_list
from phyla.errors import RequestError
from phyla.messages import Message, Reasoning, ToolCall, ToolResult, read_messages

if TYPE_CHECKING:
    from pathlib import Path


class Conversation:
    """A system message and what follows it: questions, answers, tool calls and their results."""

    def __init__(self, system: str | None = None) -> None:
        self.system = system
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

        A message has the OpenAI form where that keeps all of it, and its blocks otherwise.

        Raises:
            RequestError: the file cannot be written.
        """
        listed = [_written(message) for message in self.messages]
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

        Raises:
            RequestError: the file cannot be read, or a message in it is malformed; the
                conversation is as it was.
        """
        listed: list[Any] = read_json_list(file, of="messages")
        messages = list(read_messages(listed))
        has_system = messages[0].role == "system"
        self.system = messages.pop(0).text if has_system else None
        self._turns = messages


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
