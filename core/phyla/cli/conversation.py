"""A conversation that grows by whole turns, so that it can be sent at any time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from phyla.errors import RequestError
from phyla.messages import Message, Reasoning, Text

if TYPE_CHECKING:
    from pathlib import Path


class Conversation:
    """A system message, and pairs of a user's and an assistant's message."""

    def __init__(self, system: str | None = None) -> None:
        self.system = system
        self._turns: list[Message] = []

    def asking(self, text: str) -> list[Message]:
        """The messages so far with a new one of the user's, which is not kept."""
        return [*self.messages, Message(role="user", content=text)]

    def add(self, question: str, answer: str, *, reasoning: str = "") -> None:
        """Keep a turn; `reasoning` is what the assistant thought before it answered."""
        blocks = (Reasoning(text=reasoning), Text(text=answer))
        self._turns.append(Message(role="user", content=question))
        self._turns.append(Message(role="assistant", content=blocks if reasoning else answer))

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
        """Write the messages as a JSON list in the OpenAI form.

        Raises:
            RequestError: the file cannot be written.
        """
        listed = [_openai(message) for message in self.messages]
        try:
            file.expanduser().write_text(
                json.dumps(listed, ensure_ascii=False, indent=2) + "\n", encoding="utf-8"
            )
        except (OSError, RuntimeError) as error:  # RuntimeError: `~name` of nobody's
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise RequestError(
                f"{file} cannot be written: {reason}.", field="file", found=str(file)
            ) from error


def _openai(message: Message) -> dict[str, str]:
    fields = {"role": message.role, "content": message.text}
    reasoning = "".join(block.text for block in message.blocks if isinstance(block, Reasoning))
    return {**fields, "reasoning_content": reasoning} if reasoning else fields
