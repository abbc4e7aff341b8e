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
