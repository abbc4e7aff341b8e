"""The base of every model's forward pass."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence  # noqa: TC003 (read by documentation tools)
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import mlx.nn as nn  # pyright: ignore[reportMissingTypeStubs]

from phyla.family.caches import CacheKind  # noqa: TC001

if TYPE_CHECKING:
    from phyla.family.step import Step


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

    def rotate_keys(self, layer: int, keys: mx.array, by: int) -> mx.array:
        """Move a layer's stored keys `[B, kv_heads, T, key_dim]` to positions `by` further on."""
        raise NotImplementedError("this model's positions cannot be moved")
