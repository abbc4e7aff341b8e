"""A conversation made ready for a model: token ids and what is known about them."""

from __future__ import annotations

from dataclasses import dataclass
from operator import index
from typing import TYPE_CHECKING

from phyla.errors import EmptyInputError, RequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from phyla.messages import Tool


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """What `Engine.encode` makes and the engine runs.

    Attributes:
        ids: the token ids.
        text: the rendered text that they stand for; empty when the ids were given.
        opens_reasoning: whether the prompt ends inside a reasoning span, so that the model's first
            words are reasoning.
        tools: what the model may call; with None, calls are not looked for in the reply.
        seed: the opening of a call that the prompt ends with, so that the reply must be one; it
            is read as the reply's beginning.
    """

    ids: tuple[int, ...]
    text: str = ""
    opens_reasoning: bool = False
    tools: tuple[Tool, ...] | None = None
    seed: str = ""


def read_ids(ids: Sequence[int] | Prompt, vocab_size: int) -> Prompt:
    """Check token ids from a caller.

    Raises:
        EmptyInputError: there are none.
        RequestError: one is no integer, or outside the vocabulary.
    """
    if isinstance(ids, Prompt):
        prompt = ids
    else:
        try:
            prompt = Prompt(ids=tuple(index(token) for token in ids))
        except TypeError:
            raise RequestError(
                "Token ids should be integers.", field="ids", expected="integers", found=ids
            ) from None
    if not prompt.ids:
        raise EmptyInputError("The prompt is empty.", field="ids", hint="Pass at least one token.")
    for place, token in enumerate(prompt.ids):
        if not 0 <= token < vocab_size:
            raise RequestError(
                f"Token id {token} at place {place} is outside the vocabulary of {vocab_size}.",
                field=f"ids[{place}]",
                expected=f"0 to {vocab_size - 1}",
                found=token,
            )
    return prompt
