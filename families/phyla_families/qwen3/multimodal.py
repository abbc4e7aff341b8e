"""Qwen3-VL and Qwen3.5 with their vision tower: what a decoder gains by it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
import mlx.nn as nn

from phyla.family import Features, MediaRun, Model
from phyla.nn import CausalDecoder, HybridDecoder
from phyla_families.qwen3.positions import multimodal_positions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from phyla.modality import Modality
    from phyla_families.qwen3.vision import VisionTower


class Multimodal(Model):
    """To be mixed into a decoder."""

    embed_tokens: nn.Embedding
    visual: VisionTower

    def media_features(self, modality: Modality, arrays: Mapping[str, mx.array]) -> Features:
        """Run the tower on an image, or on a video's frames."""
        if modality == "audio":
            return super().media_features(modality, arrays)
        found = self.visual(arrays)
        dtype = self._dtype()
        return Features(
            found.hidden.astype(dtype), tuple(each.astype(dtype) for each in found.deep)
        )

    def media_positions(
        self, ids: NDArray[np.int32], runs: Sequence[MediaRun]
    ) -> NDArray[np.int32]:
        """`[3, T]`: time, row and column."""
        return multimodal_positions(len(ids), runs)

    def _dtype(self) -> mx.Dtype:
        """What embeddings come as, whether or not the table is quantized."""
        return self.embed_tokens(mx.array([0])).dtype


class VlDecoder(Multimodal, CausalDecoder):
    """Qwen3-VL: a Qwen3 with a tower."""


class HybridVlDecoder(Multimodal, HybridDecoder):
    """Qwen3.5 with its tower."""
