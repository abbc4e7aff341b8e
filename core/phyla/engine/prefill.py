"""Reads a prompt chunk by chunk, cutting where something is to be remembered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phyla.engine.decode import feed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import mlx.core as mx

    from phyla.engine.decode import Cursor


class Prefill:
    """The rest of a prompt, behind what its cursor holds already.

    Args:
        cursor: the sequence.
        ids: the whole prompt; at least one token of it is left to read.
        cuts: lengths at which a chunk must end.
        logits: whether the logits after the last token are wanted.
    """

    def __init__(
        self,
        cursor: Cursor,
        ids: Sequence[int],
        *,
        cuts: Iterable[int] = (),
        logits: bool = True,
    ) -> None:
        self.cursor = cursor
        self.ids = ids
        self._cuts = sorted(cuts)
        self.wants_logits = logits
        self.logits: mx.array | None = None

    @property
    def done(self) -> bool:
        """Whether everything is read."""
        return self.cursor.length >= len(self.ids)

    def reach(self, chunk: int) -> int:
        """How many tokens can be read at once, up to `chunk`."""
        start = self.cursor.length
        stop = min(len(self.ids), start + chunk)
        return next((cut for cut in self._cuts if start < cut < stop), stop) - start

    def step(self, chunk: int) -> None:
        """Read up to `chunk` tokens; the last one leaves `logits` `[V]`, if they are wanted."""
        step_together([self], self.reach(chunk))


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
