"""What was fed, as prompts are told apart by it, and where a part of it may end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable


@dataclass(frozen=True)
class Key:
    """What was fed.

    Attributes:
        items: token ids, and for each position of a media span something that tells the content of
            the whole span: where two keys have the same items, they have the same spans.
        spans: the media spans, `[start, stop)`; no hit ends inside one.
    """

    items: tuple[Hashable, ...]
    spans: tuple[tuple[int, int], ...] = ()

    def __len__(self) -> int:
        return len(self.items)

    def cut(self, length: int) -> Key:
        """The first `length` items. A span that is cut through keeps its stop: it is no end."""
        if length >= len(self.items):
            return self
        spans = tuple(span for span in self.spans if span[0] < length)
        return Key(self.items[:length], spans)


def outside(length: int, spans: tuple[tuple[int, int], ...]) -> int:
    """The greatest length up to this one that ends inside no span."""
    for start, stop in sorted(spans, reverse=True):
        if start < length < stop:
            length = start
    return length
