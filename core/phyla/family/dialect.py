"""How a checkpoint's text is marked: where turns end, where reasoning starts and ends."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """What a family knows about the text of one checkpoint.

    Attributes:
        name: names the dialect in reports.
        extra_eos: tokens, by their text, that end a turn and that neither config.json nor
            generation_config.json lists; those that the vocabulary lacks are ignored.
        reasoning: the texts that open and close a reasoning span; None if the model writes none.
        thinking_variable: the template's variable that turns reasoning on and off; None if it has
            no such switch.
    """

    name: str
    extra_eos: tuple[str, ...] = ()
    reasoning: tuple[str, str] | None = None
    thinking_variable: str | None = None
