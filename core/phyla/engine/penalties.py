"""Repetition, presence and frequency penalties of one request, kept lazy.

Knows the ids in the window as an array that is never read on the host, so that the next step's
graph can be built before the last token is known.
"""

from __future__ import annotations

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
        prompt: the prompt's ids; seen only by a window that is not 0.
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
        self._window = options.penalty_window
        past = (*prompt, *generated) if self._window else tuple(generated)
        known = [token for token in past if 0 <= token < vocab_size]
        if self._window:
            known = known[-self._window :]
        # The window's ids, oldest first, with repeats. Working on these few and not on the whole
        # vocabulary is what keeps penalties cheap: `where` over 150,000 values is slow on a CPU.
        self._ids = mx.array(known, dtype=mx.uint32)
        self._counts: mx.array | None = None
        if self._frequency != 0:
            self._counts = mx.zeros((vocab_size,)).at[self._ids].add(1.0)

    def apply(self, logits: mx.array) -> mx.array:
        """Return new logits `[V]`: repetition first, then presence, then frequency."""
        if self._ids.size == 0:
            return logits
        seen = logits[self._ids]
        if self._repetition != 1:
            seen = mx.where(seen > 0, seen / self._repetition, seen * self._repetition)
        if self._presence != 0:
            seen = seen - self._presence
        if self._counts is not None:
            seen = seen - self._frequency * self._counts[self._ids]
        # A repeated id writes the same value twice.
        return mx.put_along_axis(logits, self._ids, seen, axis=0)

    def observe(self, token: mx.array) -> None:
        """Take a lazy token `[]` into the window, and the oldest out of a full one."""
        token = token.reshape(1).astype(mx.uint32)
        if self._counts is not None:
            self._counts = self._counts.at[token].add(1.0)
        self._ids = mx.concatenate([self._ids, token])
        if self._window and self._ids.size > self._window:
            if self._counts is not None:
                self._counts = self._counts.at[self._ids[:1]].add(-1.0)
            self._ids = self._ids[1:]


def has_penalties(options: ResolvedOptions) -> bool:
    """Whether any of the three penalties does something."""
    return (
        options.repetition_penalty != 1
        or options.presence_penalty != 0
        or options.frequency_penalty != 0
    )
