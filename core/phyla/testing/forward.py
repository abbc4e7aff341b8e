"""A model without an engine around it: its logits, however a prompt is cut."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np

from phyla.checkpoint import open_checkpoint
from phyla.engine.decode import Cursor
from phyla.engine.layers import Allocation, Layers
from phyla.engine.loading import build, plan
from phyla.registry import discover

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import ArrayLike, NDArray

    from phyla.family import CacheKind, Model
    from phyla.registry import Registry

# What a float32 computation in another order may differ by, as a part of the logits' range.
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Run:
    """What a model made of some tokens of a sequence, fed in one piece or in several.

    Attributes:
        start: how many tokens came before them.
        logits: `[T, V]`, after each of them.
        layers: the hidden states `[T, D]` after each layer that was tapped, in float32, by its index.
    """

    start: int
    logits: NDArray[np.float32]
    layers: Mapping[int, NDArray[np.float32]]

    def part(self, start: int, count: int) -> Run:
        """The same of `count` tokens, the first of them number `start` of the sequence."""
        rows = slice(start - self.start, start - self.start + count)
        layers = {layer: hidden[rows] for layer, hidden in self.layers.items()}
        return Run(start, self.logits[rows], layers)


class Forward:
    """A checkpoint's model, on the thread that made it.

    Args:
        source: what `phyla.load` takes.
        dtype: as `phyla.load` takes it.
        family: the family's name, when more than one could take the checkpoint.
        registry: the families to choose from; all installed ones when absent.
    """

    def __init__(
        self,
        source: str | Path,
        *,
        dtype: str | None = "float32",
        family: str | None = None,
        registry: Registry | None = None,
    ) -> None:
        checkpoint = open_checkpoint(source, offline=True)
        chosen = (registry or discover()).family_for(checkpoint, family)
        blueprint = plan(checkpoint, chosen, dtype=dtype)
        self.name = checkpoint.name
        self.family = chosen.name
        self.config = blueprint.config
        self.model: Model = build(blueprint)
        self._dtype = blueprint.precision.activations

    @property
    def kinds(self) -> tuple[CacheKind, ...]:
        """What each layer remembers."""
        return tuple(self.model.cache_kinds())

    def run(
        self, ids: Sequence[int], *, chunk: int | None = None, cursor: Cursor | None = None
    ) -> Run:
        """Feed tokens, `chunk` at a time or all at once, and look at every layer.

        They go on where the cursor stands; without one they are a sequence of their own.
        """
        if cursor is None:
            cursor = self.cursor(len(ids))
        start, size = cursor.length, chunk or len(ids)
        logits: list[NDArray[np.float32]] = []
        states: dict[int, list[NDArray[np.float32]]] = {}

        def tap(layer: int, hidden: mx.array) -> None:
            states.setdefault(layer, []).append(np.array(hidden[0].astype(mx.float32)))

        for at in range(0, len(ids), size):
            logits.append(np.array(cursor.trace(ids[at : at + size], tap)))
        layers = {layer: np.concatenate(states[layer]) for layer in sorted(states)}
        return Run(start, np.concatenate(logits), layers)

    def logits(
        self, ids: Sequence[int], *, chunk: int | None = None, extent: int | None = None
    ) -> NDArray[np.float32]:
        """The logits `[T, V]` of every position, fed `chunk` tokens at a time, or all at once.

        `extent` is how many tokens the sequence may reach; as many as there are when None.
        """
        cursor = self.cursor(extent or len(ids))
        size = chunk or len(ids)
        pieces = [
            np.array(cursor.trace(ids[start : start + size], _ignore))
            for start in range(0, len(ids), size)
        ]
        return np.concatenate(pieces)

    def decoded(self, ids: Sequence[int], *, prompt: int, chunk: int) -> NDArray[np.float32]:
        """The logits `[T - prompt + 1, V]` after `prompt` tokens and after each one that follows.

        The prompt is read in chunks and the rest token by token, as generation does.
        """
        cursor = self.cursor(len(ids))
        rows = [cursor.prefill(ids[:prompt], chunk=chunk)]
        rows += [cursor.advance(mx.array(token)) for token in ids[prompt:]]
        return np.array(mx.stack(rows))

    def greedy(self, ids: Sequence[int], count: int, *, chunk: int = 512) -> list[int]:
        """The `count` likeliest tokens after `ids`, each after the one before."""
        cursor = self.cursor(len(ids) + count)
        logits = cursor.prefill(ids, chunk=chunk)
        tokens: list[int] = []
        for _ in range(count):
            token = mx.argmax(logits)
            tokens.append(token_id(token))
            if len(tokens) < count:
                logits = cursor.advance(token)
        return tokens

    def cursor(self, extent: int, layers: Layers | None = None) -> Cursor:
        """A sequence that may reach `extent` tokens, empty or with what these layers hold."""
        if layers is None:
            layers = Allocation(self.kinds, self._dtype).layers()
        return Cursor(self.model, layers, dtype=self._dtype, extent=extent, reserve=extent)


def token_id(token: mx.array) -> int:
    """The number in a scalar."""
    value = token.item()
    assert isinstance(value, int)
    return value


def _ignore(layer: int, hidden: mx.array) -> None:
    """A tap that looks away."""


def assert_close(
    found: ArrayLike, reference: ArrayLike, *, tolerance: float = TOLERANCE, what: str = ""
) -> None:
    """Check that logits agree: their largest difference is a small part of the reference's range.

    Args:
        found: an array of any shape.
        reference: what it should be.
        tolerance: how large a part of the range the difference may be.
        what: what is compared, for the message.

    Raises:
        AssertionError: they do not, or their shapes differ; tells the difference and the range.
    """
    before = f"{what}: " if what else ""
    ours, theirs = np.asarray(found, np.float64), np.asarray(reference, np.float64)
    if ours.shape != theirs.shape:
        raise AssertionError(f"{before}shape {ours.shape} instead of {theirs.shape}")
    spread = float(theirs.max() - theirs.min())
    difference = float(np.abs(ours - theirs).max())
    if not difference < tolerance * spread:  # also when one of them is nan
        place = tuple(int(i) for i in np.unravel_index(np.abs(ours - theirs).argmax(), ours.shape))
        raise AssertionError(
            f"{before}differs by {difference:.3g} at {place}: {difference / spread:.3g} of the "
            f"range {spread:.3g}, more than {tolerance:.3g}"
        )
