"""Images, audio and videos that go with the next message of a conversation."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from phyla.cli.file_names import file_names, name_of, short_name
from phyla.cli.media_input import read_medium
from phyla.errors import RequestError
from phyla.messages import Message, Text
from phyla.modality import MODALITIES, PLURALS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from phyla.cli.media_wishes import Wishes
    from phyla.engine.engine import Engine
    from phyla.messages import Medium
    from phyla.modality import Modality

COMMANDS: dict[str, Modality] = {f"/{modality}": modality for modality in MODALITIES}


class Pending:
    """What was added since the last message.

    Args:
        engine: is asked whether it can read what is added.
        allow_http: whether http and https URLs are fetched.
        wishes: what holds for everything that is added.
    """

    def __init__(self, engine: Engine, *, allow_http: bool, wishes: Wishes) -> None:
        self._engine = engine
        self._allow_http = allow_http
        self._wishes = wishes
        self._waiting: list[Medium] = []

    def add(self, modality: Modality, typed: str) -> str:
        """Add what a user typed behind a command; returns a line to say.

        Raises:
            RequestError: nothing was typed.
            PhylaError: it cannot be read, or not by this model; nothing is added.
        """
        if not typed:
            raise RequestError(f"/{modality} needs a file's name.", field="file")
        block = read_medium(
            modality,
            _unquoted(typed),
            allow_http=self._allow_http,
            wishes=self._wishes,
            keep=True,
        )
        return self.take([block])

    def take(self, blocks: Sequence[Medium]) -> str:
        """Add what was read already; returns a line to say.

        Raises:
            PhylaError: this model cannot read it; nothing is added.
        """
        alone = Message(role="user", content=(*blocks, Text(text="?")))
        with file_names([name_of(block) for block in blocks]):
            placed = self._engine.encode([alone]).media
        self._waiting += blocks
        tokens = sum(each.stop - each.start for each in placed)
        which = "the last takes" if len(blocks) == 1 else "together"
        return f"(with the next message: {self.listed()}; {which} {tokens} tokens)"

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
        return Message(role="user", content=(*self._waiting, Text(text=text)))

    def listed(self) -> str:
        """What waits, in words."""
        return ", ".join(
            f"{block.type} {name_of(block) or short_name(block.source)}" for block in self._waiting
        )

    @property
    def prompt(self) -> str:
        """What to show before the next message."""
        kinds = [block.type for block in self._waiting]
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
