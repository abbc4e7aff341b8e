"""Puts a conversation into the words that a checkpoint's template can show. Knows no Jinja.

Some templates have no field for reasoning or for tool calls; what such a model said before reaches
it as text, in the model's own marks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from phyla.messages import Message, Reasoning, Text, ToolCall

if TYPE_CHECKING:
    from collections.abc import Sequence

    from phyla.family import Dialect
    from phyla.messages import Block


def told(
    messages: Sequence[Message], dialect: Dialect, *, instruction: str = ""
) -> tuple[Message, ...]:
    """The conversation as the template is to be given it.

    Args:
        messages: the conversation as the caller has it.
        dialect: what the template can show.
        instruction: a sentence that the system message has to end with.
    """
    shown = tuple(
        _assistant(message, dialect) if message.role == "assistant" else message
        for message in messages
    )
    return _instructed(shown, instruction) if instruction else shown


def _assistant(message: Message, dialect: Dialect) -> Message:
    marks = dialect.reasoning if dialect.history.inline else None
    blocks: list[Block] = []
    for block in message.blocks:
        if isinstance(block, Reasoning) and marks is not None:
            blocks.append(Text(text=f"{marks.open}\n{block.text}\n{marks.close}\n\n"))
        elif isinstance(block, ToolCall) and not dialect.history.calls and block.raw:
            blocks.append(Text(text=block.raw))
        else:
            blocks.append(block)
    if blocks == list(message.blocks):
        return message
    return message.model_copy(update={"content": tuple(blocks)})


def _instructed(messages: tuple[Message, ...], instruction: str) -> tuple[Message, ...]:
    first = messages[0]
    if first.role not in ("system", "developer"):
        return (Message(role="system", content=instruction), *messages)
    text = f"{first.text.rstrip()}\n{instruction}" if first.text else instruction
    return (first.model_copy(update={"content": text}), *messages[1:])
