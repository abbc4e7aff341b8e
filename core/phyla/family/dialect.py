"""How a model's text is marked: end-of-turn tokens and, later, reasoning and tool-call markers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """What a family knows about the text of one checkpoint.

    Attributes:
        name: names the dialect in reports.
        extra_eos: tokens, by their text, that end a turn and that neither config.json nor
            generation_config.json lists; those that the vocabulary lacks are ignored.
    """

    name: str
    extra_eos: tuple[str, ...] = ()
