"""Images, audio and videos that go with the next message of a conversation."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from phyla.cli.media_input import read_medium, short_name
from phyla.errors import RequestError
from phyla.messages import Message, Text
from phyla.modality import MODALITIES, PLURALS

if TYPE_CHECKING:
    from phyla.engine.engine import Engine
    from phyla.messages import Medium
    from phyla.modality import Modality

COMMANDS: dict[str, Modality] = {f"/{modality}": modality for modality in MODALITIES}


@dataclass(frozen=True)
class _Waiting:
    block: Medium
    name: str


class Pending:
    """What was added since the last message.

    Args:
        engine: is asked whether it can read what is added.
        allow_http: whether http and https URLs are fetched.
    """

    def __init__(self, engine: Engine, *, allow_http: bool) -> None:
        self._engine = engine
        self._allow_http = allow_http
        self._waiting: list[_Waiting] = []

    def add(self, modality: Modality, typed: str) -> str:
        """Add what a user typed behind a command; returns a line to say.

        Raises:
            RequestError: nothing was typed.
            PhylaError: it cannot be read, or not by this model; nothing is added.
        """
        if not typed:
            raise RequestError(f"/{modality} needs a file's name.", field="file")
        text = _unquoted(typed)
        block = read_medium(modality, text, allow_http=self._allow_http)
        alone = Message(role="user", content=(block, Text(text="?")))
        placed = self._engine.encode([alone]).media
        self._waiting.append(_Waiting(block, short_name(text)))
        tokens = sum(each.stop - each.start for each in placed)
        return f"(with the next message: {self.listed()}; the last takes {tokens} tokens)"

    def drop(self) -> str:
        """Forget all; returns a line to say."""
        dropped = self.listed()
        self._waiting.clear()
        return f"Forgot {dropped}." if dropped else "Nothing was waiting."

    def sent(self) -> None:
        """Forget all, since a message took it along."""
        self._waiting.clear()

    def message(self, text: str) -> Message:
        """A message with what waits before its text."""
        if not self._waiting:
            return Message(role="user", content=text)
        blocks = tuple(each.block for each in self._waiting)
        return Message(role="user", content=(*blocks, Text(text=text)))

    def listed(self) -> str:
        """What waits, in words."""
        return ", ".join(f"{each.block.type} {each.name}" for each in self._waiting)

    @property
    def prompt(self) -> str:
        """What to show before the next message."""
        kinds = [each.block.type for each in self._waiting]
        words = [
            f"{kinds.count(kind)} {kind if kinds.count(kind) == 1 else PLURALS[kind]}"
            for kind in MODALITIES
            if kind in kinds
        ]
        return f"[{', '.join(words)}] > " if words else "> "


def _unquoted(typed: str) -> str:
    """A path as it was typed, or as a terminal writes one that is dragged into it, with quotes."""
    if Path(typed).exists():
        return typed
    try:
        words = shlex.split(typed)
    except ValueError:  # a lone quote
        return typed
    return words[0] if len(words) == 1 else typed
