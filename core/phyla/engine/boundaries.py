"""Finds where a prompt is likely to part from a later one, by rendering parts of the conversation.

A boundary is a number of tokens: what a part of the conversation, rendered by itself, has in common
with the whole. So it holds for any template, also for one that tells earlier turns differently when
more follow. Knows no particular template, and no model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from phyla.engine.radix import common_length
from phyla.errors import RequestError, TemplateError
from phyla.messages import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from phyla.caching import Breakpoint

# Two first words of a user that no one conversation begins with both.
PROBES = ("Alpha", "zeta")


class Boundaries:
    """The boundaries of one prompt.

    Args:
        render: turns messages into the template's text, without the opening of a reply.
        encode: turns text into ids.
        messages: the conversation.
        text: the whole prompt.
        ids: what it is encoded to.
    """

    def __init__(
        self,
        render: Callable[[Sequence[Message]], str],
        encode: Callable[[str], Sequence[int]],
        messages: Sequence[Message],
        text: str,
        ids: Sequence[int],
    ) -> None:
        self._render = render
        self._encode = encode
        self._messages = messages
        self._text = text
        self._ids = ids

    def before_reply(self) -> int:
        """How many tokens come before the opening of the reply."""
        return self.after(len(self._messages))

    def at(self, place: Breakpoint) -> int:
        """How many tokens come before a breakpoint.

        Raises:
            RequestError: there is no such message.
        """
        if place.index is None:
            return self.after_system()
        count = len(self._messages)
        index = place.index + count if place.index < 0 else place.index
        if not 0 <= index < count:
            raise RequestError(
                f"A breakpoint stands after message {place.index}; there are {count}.",
                field="breakpoints",
                expected=f"{-count} to {count - 1}",
                found=place.index,
            )
        return self.after(index + 1)

    def after_system(self) -> int:
        """How many tokens come before the first turn, whatever it says."""
        system = [m for m in self._messages if m.role in ("system", "developer")]
        leading = self._messages[: len(system)]
        if list(leading) != system:
            leading = ()
        shared = self._text
        for probe in PROBES:
            turn = Message(role="user", content=probe)
            shared = self._shared([*leading, turn], shared)
        return self._count(shared)

    def after(self, count: int) -> int:
        """How many tokens the first `count` messages come to."""
        return self._count(self._shared(self._messages[:count], self._text))

    def _shared(self, messages: Sequence[Message], text: str) -> str:
        """What these messages, rendered by themselves, and the text begin with."""
        try:
            part = self._render(messages)
        except TemplateError:
            return ""  # A template may refuse a conversation that stops there.
        return text[: common_length(part, text)]

    def _count(self, prefix: str) -> int:
        """How many of the prompt's ids the prefix of its text certainly stands for."""
        if not prefix:
            return 0
        return common_length(self._ids, self._encode(prefix))
