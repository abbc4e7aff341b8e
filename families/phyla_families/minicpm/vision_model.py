"""MiniCPM-V 4.6 and 4.7: Qwen3.5's decoder, a tower, and a merger between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import mlx.core as mx

from phyla.family import Features
from phyla.nn import HybridDecoder
from phyla_families.minicpm.canvas import canvas_positions
from phyla_families.minicpm.merger import Merger
from phyla_families.minicpm.vision import VisionTower

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from phyla.family import MediaRun
    from phyla.modality import Modality
    from phyla_families.minicpm.vision_config import VisionConfig

# So many patches at once: a long video need not be in the tower all at a time.
_AT_ONCE = 2**14


class VisionModel(HybridDecoder):
    """The decoder, and the tower if there is one; images and videos go through the same tower."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__(config)
        self._canvas = config.canvas
        self._sees = config.vision is not None
        if config.vision is not None:
            self.vision_tower = VisionTower(config.vision)
            self.merger = Merger(config.vision, config.hidden_size)

    def media_features(self, modality: Modality, arrays: Mapping[str, mx.array]) -> Features:
        """Look at the pictures of an item.

        Args:
            modality: `image` or `video`.
            arrays: `patches` `[N, patch, patch, 3]` uint8, `grids` `[pictures, 2]` int32, and
                `scale` and `shift` `[3]` float32, from a channel's bytes to what the tower reads.
        """
        if modality == "audio" or not self._sees:
            return super().media_features(modality, arrays)
        patches, scale, shift = arrays["patches"], arrays["scale"], arrays["shift"]
        grids = [(rows, cols) for rows, cols in cast("list[list[int]]", arrays["grids"].tolist())]
        rows: list[mx.array] = []
        start = 0
        for together in _batches(grids):
            stop = start + sum(height * width for height, width in together)
            pixels = patches[start:stop].astype(mx.float32) * scale + shift
            rows.append(self.merger(self.vision_tower(pixels, together)))
            mx.eval(rows[-1])
            start = stop
        return Features(mx.concatenate(rows))

    def media_positions(
        self, ids: NDArray[np.int32], runs: Sequence[MediaRun]
    ) -> NDArray[np.int32] | None:
        """None for 4.6, which counts soft tokens like any; 4.7 lays pictures out on canvases."""
        return None if self._canvas is None else canvas_positions(ids, runs, self._canvas)


def _batches(grids: Sequence[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """Pictures one behind the other, so many that their patches are few enough."""
    batch: list[tuple[int, int]] = []
    held = 0
    for rows, cols in grids:
        if batch and held + rows * cols > _AT_ONCE:
            yield batch
            batch, held = [], 0
        batch.append((rows, cols))
        held += rows * cols
    yield batch
