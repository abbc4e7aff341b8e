"""Repetition, presence and frequency penalties of one request, kept lazy.

Knows the ids in the window as an array that is never read on the host, so that the next step's
graph can be built before the last token is known.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

import mlx.core as mx

if TYPE_CHECKING:
    from collections.abc import Sequence

    from phyla.engine.resolve import ResolvedOptions


class Penalties:
    """Penalizes the tokens in the window; `observe` moves the window on by one token.

    Args:
        options: the three penalties and `penalty_window`.
        vocab_size: ids outside the vocabulary (a prompt may hold placeholders) take no place in
            the window.
        prompt: the prompt's ids.
        generated: ids generated earlier.
    """

    def __init__(
        self,
        options: ResolvedOptions,
        *,
        vocab_size: int,
        prompt: Sequence[int] = (),
        generated: Sequence[int] = (),
    ) -> None:
        self._repetition = options.repetition_penalty
        self._presence = options.presence_penalty
        self._frequency = options.frequency_penalty
        limit = options.penalty_window
        whole = [token for token in (*prompt, *generated) if 0 <= token < vocab_size]
        # With a window of their own choosing all three look at the same tokens; without, each
        # looks where its inventors did.
        recent = whole if limit else list(generated)
        self._repeated = _Window(whole, limit, None)
        self._used = _Window(recent, limit, vocab_size if self._frequency != 0 else None)

    def __copy__(self) -> Penalties:
        """Penalties in the same state, which go their own way from here."""
        other = Penalties.__new__(Penalties)
        other.__dict__.update(self.__dict__)
        other.__dict__.update(_repeated=copy(self._repeated), _used=copy(self._used))
        return other

    def apply(self, logits: mx.array) -> mx.array:
        """Return new logits `[V]`: repetition first, then presence, then frequency."""
        if self._repetition != 1 and self._repeated.ids.size:
            seen = logits[self._repeated.ids]
            seen = mx.where(seen > 0, seen / self._repetition, seen * self._repetition)
            logits = self._repeated.write(logits, seen)
        if (self._presence != 0 or self._frequency != 0) and self._used.ids.size:
            seen = logits[self._used.ids] - self._presence
            if self._used.counts is not None:
                seen = seen - self._frequency * self._used.counts[self._used.ids]
            logits = self._used.write(logits, seen)
        return logits

    def observe(self, token: mx.array) -> None:
        """Take a lazy token `[]` into the windows, and the oldest out of a full one."""
        token = token.reshape(1).astype(mx.uint32)
        self._repeated.observe(token)
        self._used.observe(token)


class _Window:
    """Ids, oldest first, with repeats, and on request how often each occurs.

    Working on these few and not on the whole vocabulary is what keeps penalties cheap: `where` over
    150,000 values is slow on a CPU.
    """

    def __init__(self, ids: Sequence[int], limit: int | None, vocab_size: int | None) -> None:
        self._limit = limit
        self.ids = mx.array(list(ids[-limit:] if limit else ids), dtype=mx.uint32)
        self.counts: mx.array | None = None
        if vocab_size is not None:
            self.counts = mx.zeros((vocab_size,)).at[self.ids].add(1.0)

    def write(self, logits: mx.array, values: mx.array) -> mx.array:
        """Put one value per id; a repeated id writes the same value twice."""
        return mx.put_along_axis(logits, self.ids, values, axis=0)

    def observe(self, token: mx.array) -> None:
        if self.counts is not None:
            self.counts = self.counts.at[token].add(1.0)
        self.ids = mx.concatenate([self.ids, token])
        if self._limit and self.ids.size > self._limit:
            if self.counts is not None:
                self.counts = self.counts.at[self.ids[:1]].add(-1.0)
            self.ids = self.ids[1:]


def has_penalties(options: ResolvedOptions) -> bool:
    """Whether any of the three penalties does something."""
    return (
        options.repetition_penalty != 1
        or options.presence_penalty != 0
        or options.frequency_penalty != 0
    )
