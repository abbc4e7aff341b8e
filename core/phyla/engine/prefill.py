"""Reads a prompt chunk by chunk, cutting where something is to be remembered."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx

from phyla.engine.decode import feed
from phyla.engine.features import NO_MEDIA

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from phyla.engine.decode import Cursor
    from phyla.engine.features import MediaFeed


class Prefill:
    """The rest of a prompt, behind what its cursor holds already.

    Args:
        cursor: the sequence.
        ids: the whole prompt; at least one token of it is left to read.
        cuts: lengths at which a chunk must end.
        logits: whether the logits after the last token are wanted.
        media: hands out the prompt's media, if it holds any.
    """

    def __init__(
        self,
        cursor: Cursor,
        ids: Sequence[int],
        *,
        cuts: Iterable[int] = (),
        logits: bool = True,
        media: MediaFeed | None = None,
    ) -> None:
        self.cursor = cursor
        self.ids = ids
        self._cuts = sorted(cuts)
        self.wants_logits = logits
        self._media = media
        self.logits: mx.array | None = None

    @property
    def done(self) -> bool:
        """Whether everything is read."""
        return self.cursor.length >= len(self.ids)

    @property
    def alone(self) -> bool:
        """Whether what is left cannot be read together with other prompts."""
        holds_media = self._media is not None and self._media.left(self.cursor.length)
        return holds_media or self.cursor.positions is not None

    def reach(self, chunk: int) -> int:
        """How many tokens can be read at once, up to `chunk`, or one picture that is longer."""
        start = self.cursor.length
        stop = min(len(self.ids), start + chunk)
        if self._media is not None:
            stop = self._media.whole(start, stop)
        return next((cut for cut in self._cuts if start < cut < stop), stop) - start

    def step(self, chunk: int) -> None:
        """Read up to `chunk` tokens; the last one leaves `logits` `[V]`, if they are wanted.

        Where a tower has to run first, one of them runs instead.
        """
        if not self.alone:
            step_together([self], self.reach(chunk))
            return
        start = self.cursor.length
        stop = start + self.reach(chunk)
        media = NO_MEDIA
        if self._media is not None:
            if self._media.look(start, stop):
                return
            media = self._media.chunk(start, stop)
        last = self.wants_logits and stop == len(self.ids)
        self.logits = self.cursor.feed(self.ids[start:stop], last=last, media=media)
        if self.logits is not None:
            mx.eval(self.cursor.layers.arrays)


def step_together(prefills: Sequence[Prefill], count: int) -> None:
    """Read `count` tokens of each of several prompts, none more than it can `reach`."""
    pieces, last = [], []
    for prefill in prefills:
        start = prefill.cursor.length
        pieces.append(prefill.ids[start : start + count])
        last.append(prefill.wants_logits and start + count == len(prefill.ids))
    logits = feed([prefill.cursor for prefill in prefills], pieces, last=last)
    for prefill, row in zip(prefills, logits, strict=True):
        prefill.logits = row
