"""A look inside a forward pass: logits of every position, hidden states of every layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np

from phyla.engine.features import NO_MEDIA, positions_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from phyla.engine.generation import Runtime
    from phyla.prompt import Prompt


@dataclass(frozen=True)
class LayerStatistics:
    """Of one layer's hidden states, over all positions and dimensions."""

    mean: float
    std: float
    max_abs: float
    finite: bool


@dataclass(frozen=True)
class LayerTrace:
    """The hidden states `[T, D]` (float32) after one layer, and the type they were computed in."""

    hidden: NDArray[np.float32]
    dtype: str
    statistics: LayerStatistics


@dataclass(frozen=True)
class Trace:
    """What `Engine.trace` returns: logits `[T, V]` in float32, and one entry per layer."""

    logits: NDArray[np.float32]
    layers: tuple[LayerTrace, ...]


def trace(runtime: Runtime, prompt: Prompt, extent: int | None = None) -> Trace:
    """Run a prompt in one go, with nothing cached before, and keep everything."""
    count = len(prompt.ids)
    cursor = runtime.cursor(
        runtime.allocation.layers(),
        extent=max(count, extent or 0),
        reserve=count,
        positions=positions_of(runtime.model, prompt.ids, prompt.media),
    )
    feed = runtime.feed(prompt.media)
    media = NO_MEDIA if feed is None else feed.chunk(0, count)
    layers: list[LayerTrace] = []

    def tap(layer: int, hidden: mx.array) -> None:
        assert layer == len(layers), "a model taps each layer once, in order"
        values = np.array(hidden[0].astype(mx.float32))
        statistics = LayerStatistics(
            mean=float(values.mean()),
            std=float(values.std()),
            max_abs=float(np.abs(values).max()),
            finite=bool(np.isfinite(values).all()),
        )
        layers.append(LayerTrace(values, str(hidden.dtype).removeprefix("mlx.core."), statistics))

    logits = cursor.trace(prompt.ids, tap, media)
    return Trace(np.array(logits), tuple(layers))
