"""The toy family: model type `toy`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from phyla.checkpoint import Checkpoint
from phyla.family import Family, Rename, WeightRule
from phyla.hooks import hookimpl
from phyla_toy.config import Config
from phyla_toy.model import Toy


def rules(config: Config, checkpoint: Checkpoint) -> Sequence[WeightRule]:
    """Checkpoints put everything below `toy.`."""
    return [Rename(r"toy\.(.*)", r"\1")]


TOY = Family(name="toy", model_types=("toy",), config=Config, model=Toy, weights=rules)


@hookimpl
def phyla_provide_families() -> Iterable[Family]:
    return [TOY]
