"""The base of every model's forward pass."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence  # noqa: TC003 (read by documentation tools)
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import mlx.nn as nn  # pyright: ignore[reportMissingTypeStubs]

from phyla.family.caches import CacheKind  # noqa: TC001

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from phyla.family.media import MediaRun
    from phyla.family.step import Step
    from phyla.modality import Modality


@dataclass(frozen=True)
class Features:
    """What a tower made of one item: a row for each of its soft tokens, in order.

    Attributes:
        hidden: `[N, D]`, put in the place of embeddings as they are.
        deep: for each of the first layers `[N, D]`, added to the hidden states after that layer
            (deepstack, Qwen3-VL).
    """

    hidden: mx.array
    deep: tuple[mx.array, ...] = ()


class Model(nn.Module):
    """A decoder: ids in, hidden states through the layers, logits out where they are asked for.

    Its parameters carry the checkpoint's names after the family's weight rules. Row b of a batch is
    one sequence; rows may stand at different positions; a layer never mixes rows.
    """

    @property
    def rotates_keys(self) -> bool:
        """Whether `rotate_keys` is there; a session can then drop tokens from its middle."""
        return False

    @property
    def needs_ids(self) -> bool:
        """Whether layers look at token ids too, so that embeddings alone say too little."""
        return False

    @property
    def extent_boundary(self) -> int | None:
        """Where there is one: sequences that may grow longer than this are computed differently.

        See `Step.extents`. What is remembered of one side is of no use to the other.
        """
        return None

    @abstractmethod
    def cache_kinds(self) -> Sequence[CacheKind]:
        """One kind per layer, in order."""

    @abstractmethod
    def embed(self, step: Step) -> mx.array:
        """Turn `step.ids` `[B, T]` into hidden states `[B, T, D]`."""

    @abstractmethod
    def __call__(self, hidden: mx.array, step: Step, caches: Sequence[Any]) -> mx.array:
        """Run the layers on `hidden` `[B, T, D]`; return the final hidden states, normed.

        `caches[i]` is layer i's cache, of the kind that `cache_kinds` declared.
        """

    @abstractmethod
    def logits(self, hidden: mx.array) -> mx.array:
        """Project final hidden states `[..., D]` to logits `[..., V]`."""

    def media_features(self, modality: Modality, arrays: Mapping[str, mx.array]) -> Features:
        """Run the tower of a modality on one item, as the family's reader prepared it."""
        raise NotImplementedError(f"this model has no tower for {modality}")

    def media_positions(
        self, ids: NDArray[np.int32], runs: Sequence[MediaRun]
    ) -> NDArray[np.int32] | None:
        """Where the tokens of a prompt with media stand: `[axes, T]`; None counts them one by one.

        Called with a whole prompt. What it says of a beginning that ends outside any item must not
        depend on what follows. The token behind the prompt stands one further than the largest
        position, on all axes, and each later one one further than the one before.
        """
        del ids, runs

    def rotate_keys(self, layer: int, keys: mx.array, by: int) -> mx.array:
        """Move a layer's stored keys `[B, kv_heads, T, key_dim]` to positions `by` further on."""
        raise NotImplementedError("this model's positions cannot be moved")
