"""One call of the forward pass: which tokens, where they stand. Knows no model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import mlx.core as mx


class Tap(Protocol):
    """Receives the hidden state after each layer, for tracing."""

    def __call__(self, layer: int, hidden: mx.array) -> None:
        """Take note of `hidden` `[B, T, D]` after layer `layer`."""
        ...


def _ignore(layer: int, hidden: mx.array) -> None:
    """The tap of an ordinary step."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """A chunk of `T` tokens for each of `B` sequences.

    Attributes:
        ids: `[B, T]` int32 token ids.
        positions: `[B, T]` int32 positions of the tokens in their sequences.
        axes: `[axes, B, T]` int32, the positions on each axis, where `Model.media_positions` gave
            several that differ within this chunk; `positions` is then their first.
        deep: for each of the first layers `[B, T, D]`, to be added to the hidden states after it;
            zero where there is no medium. See `Features.deep`.
        extents: per sequence, the number of tokens that it may reach; fixed for a sequence's life,
            so a rule that depends on the length (LongRoPE) picks the same side at every step.
        tap: called by the model after each layer, `step.tap(index, hidden)`.
    """

    ids: mx.array
    positions: mx.array
    extents: tuple[int, ...]
    axes: mx.array | None = None
    deep: tuple[mx.array, ...] = ()
    tap: Tap = field(default=_ignore)
