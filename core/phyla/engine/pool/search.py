"""What the pool finds for a prompt, and what keeps it from finding more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic

from phyla.caching import CacheExplanation
from phyla.engine.pool.entry import Entry, L
from phyla.engine.pool.key import outside

if TYPE_CHECKING:
    from collections.abc import Iterable

    from phyla.caching import CacheLimits, LimitedBy
    from phyla.engine.pool.key import Key


@dataclass
class Found(Generic[L]):
    """What a search saw.

    Attributes:
        entry: the one to reuse, if any.
        length: how much of it.
        lends: whether it can be handed over.
        closest: the entry that has most in common with the prompt, be it of use or not.
        matched: how much that is.
    """

    entry: Entry[L] | None = None
    length: int = 0
    lends: bool = False
    closest: Entry[L] | None = None
    matched: int = 0


def search(
    matches: Iterable[tuple[int, Entry[L]]], key: Key, *, min_tokens: int, now: float
) -> Found[L]:
    """Find the entry that gives most of `key`.

    Args:
        matches: how much each entry shares with the key, and the entry, the longest first.
        key: the prompt.
        min_tokens: the least that is reused.
        now: the time, by the pool's clock.
    """
    found: Found[L] = Found()
    for shared, entry in matches:
        if found.closest is None:
            found.closest, found.matched = entry, shared
        most = min(shared, len(key) - 1)
        if most < max(found.length, min_tokens):
            break
        length = entry.reusable(most, key.spans)
        if length < min_tokens or length < found.length:
            continue
        lends = entry.lendable(length, now)
        # Of equal ones, the first that can be handed over: that saves a copy.
        if length > found.length or (lends and not found.lends):
            found.entry, found.length, found.lends = entry, length, lends
    return found


def explained(found: Found[L], key: Key, limits: CacheLimits) -> CacheExplanation:
    """What a search found, and what limits it, in words."""
    total, matched, length = len(key), found.matched, found.length
    if limits.bytes == 0 or limits.entries == 0:
        return CacheExplanation.disabled(total)

    def because(reason: LimitedBy, detail: str) -> CacheExplanation:
        return CacheExplanation(
            cached_tokens=length,
            matched_tokens=matched,
            prompt_tokens=total,
            limited_by=reason,
            detail=detail,
        )

    if found.closest is None:
        return because("empty", "The cache holds nothing yet, in this namespace.")
    most = min(matched, total - 1)
    whole = outside(most, found.closest.key.spans + key.spans)
    if length == total - 1:
        return because("nothing", "All but the last token is reused.")
    if most < limits.min_tokens and matched > 0:
        return because(
            "minimum",
            f"The common part of {most} tokens is shorter than the least that is reused, "
            f"{limits.min_tokens}.",
        )
    if whole < most and (length >= whole or whole < limits.min_tokens):
        return because(
            "media",
            f"The common part ends at token {most}, inside an image, audio or video item that "
            f"begins at token {whole} and is reused whole or not at all.",
        )
    if length < most:
        return because(
            "snapshot",
            f"{most} tokens could be reused, but the layers cannot be brought back to "
            f"that length; the nearest state kept is at {length} tokens.",
        )
    if matched == len(found.closest.key):
        return because(
            "divergence",
            f"The longest entry that this prompt continues ends after {matched} tokens; the "
            "rest is new.",
        )
    media = any(start == matched < stop for start, stop in key.spans)
    where = ", where an image, audio or video item begins" if media else ""
    return because(
        "divergence",
        f"The prompt differs from the closest entry at token {matched}{where}.",
    )
