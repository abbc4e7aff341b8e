"""What a caller may say to, and learn from, the prompt cache. Knows no model and no MLX.

The prompt cache keeps what the model computed for earlier prompts, so that a prompt which begins
in the same way is only computed from where it differs.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Literal, TypeAlias

from phyla.errors import RequestError
from phyla.validation import shown

LimitedBy: TypeAlias = Literal[
    "nothing", "empty", "divergence", "snapshot", "media", "minimum", "disabled"
]


@dataclass(frozen=True)
class CacheLimits:
    """How much the prompt cache may keep. Zero bytes or zero entries turn it off.

    Attributes:
        bytes: the most it may hold; what does not fit is not admitted. With None it has no limit of
            its own, and gives way when requests need the memory.
        entries: how many conversations.
        idle_seconds: an entry that nobody used for so long is dropped, unless it is pinned; None
            keeps it.
        min_tokens: shorter prefixes are neither kept nor reused.
        media_bytes: the most that the features of images, audio and videos may take up, which are
            kept apart, for a picture to be looked at once.

    Raises:
        RequestError: a value is out of range; `field` names it.
    """

    bytes: int | None = None
    entries: int = 64
    idle_seconds: float | None = 3600
    min_tokens: int = 16
    media_bytes: int = 256 * 2**20

    def __post_init__(self) -> None:
        if self.bytes is not None:
            _integer("bytes", self.bytes, least=0, otherwise=" or None")
        _integer("entries", self.entries, least=0)
        if self.idle_seconds is not None:
            _seconds("idle_seconds", self.idle_seconds, otherwise=" or None")
        _integer("min_tokens", self.min_tokens, least=1)
        _integer("media_bytes", self.media_bytes, least=0)


@dataclass(frozen=True)
class Breakpoint:
    """A place in a conversation up to which it is kept for a while, whatever else comes.

    Make one with `after_system` or `after_message`.

    Attributes:
        index: the message after which the prefix ends, counted from 0, or from the end when it is
            negative; None for what comes before the first turn: system message and tools.
        ttl: for how many seconds, counted from the end of the request.

    Raises:
        RequestError: a value is out of range; `field` names it.
    """

    index: int | None
    ttl: float = 300.0

    def __post_init__(self) -> None:
        if self.index is not None:
            _integer("index", self.index)
        _seconds("ttl", self.ttl)

    @classmethod
    def after_system(cls, ttl: float = 300.0) -> Breakpoint:
        """Keep the system message and the tools.

        Raises:
            RequestError: `ttl` is no positive number of seconds.
        """
        return cls(None, ttl)

    @classmethod
    def after_message(cls, index: int, ttl: float = 300.0) -> Breakpoint:
        """Keep the conversation up to a message, that message included.

        Args:
            index: counted from 0, or from the end when it is negative.
            ttl: for how many seconds.

        Raises:
            RequestError: `index` is no integer, or `ttl` no positive number of seconds.
        """
        _integer("index", index)
        return cls(index, ttl)


@dataclass(frozen=True, kw_only=True)
class CacheStats:
    """What the prompt cache holds, and what it did since the engine was loaded.

    Attributes:
        entries: the prefixes it holds, those lent included.
        lent_entries: those that a running request goes on with. Their bytes are that request's.
        pinned_entries: those that a pin protects, lent or not.
        bytes: what the entries take up that are not lent. A part that two of them share counts
            twice.
        limit_bytes: the most that may be.
        hits: the requests that found a prefix.
        misses: the requests that found none.
        hit_tokens: how many tokens the hits had not to compute.
        evictions: the entries dropped to make room.
        expirations: the entries dropped because nobody used them.
        media: the images, audio and videos whose features are kept.
        media_bytes: what those take up, beyond `bytes`.
        media_hits: how often a tower had not to run.
        media_misses: how often it had.
    """

    entries: int
    lent_entries: int
    pinned_entries: int
    bytes: int
    limit_bytes: int | None
    hits: int
    misses: int
    hit_tokens: int
    evictions: int
    expirations: int
    media: int = 0
    media_bytes: int = 0
    media_hits: int = 0
    media_misses: int = 0


@dataclass(frozen=True, kw_only=True)
class CacheExplanation:
    """How much of a prompt the cache can give, and what stands in the way of more.

    What limits it, in `limited_by`:

    - `nothing`: all but the last token is reused; that one always has to run.
    - `empty`: the cache holds no entry, in this namespace.
    - `divergence`: all that a prompt before had in common with this one is reused; from there on
      this one differs from it, or goes on past its end.
    - `snapshot`: the common part is longer, but a layer's state (a recurrent layer, or a window
      that moved on) cannot be brought back to where it ends; the nearest one kept is earlier.
    - `media`: the common part ends inside an image, audio or video item, which is reused whole or
      not at all.
    - `minimum`: the common part is shorter than `CacheLimits.min_tokens`.
    - `disabled`: the limits turn the cache off.

    Attributes:
        cached_tokens: the tokens that need not be computed.
        matched_tokens: the longest common part with any entry.
        prompt_tokens: the whole prompt.
        limited_by: see above.
        detail: the same in a sentence, with the numbers.
    """

    cached_tokens: int
    matched_tokens: int
    prompt_tokens: int
    limited_by: LimitedBy
    detail: str

    @classmethod
    def disabled(cls, prompt_tokens: int) -> CacheExplanation:
        """What there is to say when the cache is not asked at all."""
        return cls(
            cached_tokens=0,
            matched_tokens=0,
            prompt_tokens=prompt_tokens,
            limited_by="disabled",
            detail="The prompt cache is turned off.",
        )


def _integer(field: str, found: object, least: int | None = None, otherwise: str = "") -> None:
    if type(found) is int and (least is None or found >= least):
        return
    expected = "an integer" if least is None else f"an integer of at least {least}"
    raise _out_of_range(field, expected + otherwise, found)


def _seconds(field: str, found: object, otherwise: str = "") -> None:
    if isinstance(found, int | float) and not isinstance(found, bool) and 0 < found < inf:
        return
    raise _out_of_range(field, f"a positive number of seconds{otherwise}", found)


def _out_of_range(field: str, expected: str, found: object) -> RequestError:
    return RequestError(
        f"{field} should be {expected}; found {shown(found)}.",
        field=field,
        expected=expected,
        found=found,
    )
