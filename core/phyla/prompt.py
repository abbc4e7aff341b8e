"""A conversation made ready for a model: token ids and what is known about them."""

from __future__ import annotations

from dataclasses import dataclass
from operator import index
from typing import TYPE_CHECKING

from phyla.errors import EmptyInputError, RequestError
from phyla.validation import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from phyla.engine.media import PlacedMedia
    from phyla.messages import Tool


@dataclass(frozen=True)
class PinnedPrefix:
    """The first `length` tokens of a prompt, to be kept for `ttl` seconds after its reply."""

    length: int
    ttl: float


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
        boundaries: lengths at which a later prompt is likely to part from this one, such as behind
            the system message and before the reply; the prompt cache keeps what it needs there.
        pins: prefixes that the prompt cache is to keep for a while.
        media: the images, audio and videos in it, and where.

    Raises:
        RequestError: an id is no integer.
    """

    ids: tuple[int, ...]
    text: str = ""
    opens_reasoning: bool = False
    tools: tuple[Tool, ...] | None = None
    seed: str = ""
    boundaries: tuple[int, ...] = ()
    pins: tuple[PinnedPrefix, ...] = ()
    media: tuple[PlacedMedia, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", _integers(self.ids))


def _integers(ids: Iterable[object]) -> tuple[int, ...]:
    """Python's own integers from whatever integers a caller has, such as numpy's."""
    try:
        listed = list(ids)
    except TypeError:
        raise _no_integers("ids", ids) from None
    if isinstance(ids, str):
        raise _no_integers("ids", ids)
    read: list[int] = []
    for place, token in enumerate(listed):
        try:
            if isinstance(token, bool):
                raise TypeError
            read.append(index(token))  # pyright: ignore[reportArgumentType]
        except TypeError:
            raise _no_integers(f"ids[{place}]", token) from None
    return tuple(read)


def _no_integers(field: str, found: object) -> RequestError:
    return RequestError(
        f"Token ids should be integers; {field} is {shown(found)}.",
        field=field,
        expected="integers",
        found=found,
        hint="`encode_text` makes them from a text." if isinstance(found, str) else None,
    )


def read_ids(ids: Sequence[int] | Prompt, vocab_size: int) -> Prompt:
    """Check token ids from a caller.

    Raises:
        EmptyInputError: there are none.
        RequestError: one is no integer, or outside the vocabulary.
    """
    prompt = ids if isinstance(ids, Prompt) else Prompt(ids=_integers(ids))
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
