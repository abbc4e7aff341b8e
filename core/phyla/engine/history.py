"""Puts a conversation into the words that a checkpoint's template can show. Knows no Jinja.

Some templates have no field for reasoning or for tool calls; what such a model said before reaches
it as text, in the model's own marks.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from phyla.messages import Message, Reasoning, Text, ToolCall

if TYPE_CHECKING:
    from collections.abc import Sequence

    from phyla.family import Dialect, History
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
    history = dialect.history
    marks = dialect.reasoning if history.inline else None
    blocks: list[Block] = []
    for is_call, group in groupby(message.blocks, key=lambda block: isinstance(block, ToolCall)):
        if is_call and not history.calls:
            blocks += _written([block for block in group if isinstance(block, ToolCall)], history)
            continue
        for block in group:
            if isinstance(block, Reasoning) and marks is not None:
                block = Text(text=f"{marks.open}\n{block.text}\n{marks.close}\n\n")
            blocks.append(block)
    if blocks == list(message.blocks):
        return message
    return message.model_copy(update={"content": tuple(blocks)})


def _written(calls: Sequence[ToolCall], history: History) -> Sequence[Block]:
    """Calls that came one after the other, as text."""
    if all(call.raw for call in calls):
        return [Text(text="".join(call.raw for call in calls))]
    return calls if history.write is None else [Text(text=history.write(calls))]


def _instructed(messages: tuple[Message, ...], instruction: str) -> tuple[Message, ...]:
    first = messages[0]
    if first.role not in ("system", "developer"):
        return (Message(role="system", content=instruction), *messages)
    if first.media:
        content = (*first.blocks, Text(text=f"\n{instruction}"))
        return (first.model_copy(update={"content": content}), *messages[1:])
    text = f"{first.text.rstrip()}\n{instruction}" if first.text else instruction
    return (first.model_copy(update={"content": text}), *messages[1:])
