"""The models of scripts/bench.py --types are ones that the bundled families run."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from phyla.registry import discover

if TYPE_CHECKING:
    from collections.abc import Callable

    from phyla.checkpoint import Checkpoint

TABLE = Path(__file__).parents[2] / "scripts" / "bench_peers" / "type_models.py"
MODELS: dict[str, Any] = runpy.run_path(str(TABLE))["MODELS"]


@pytest.mark.parametrize("name", list(MODELS))
def test_a_family_builds_it(name: str, checkpoint_of: Callable[..., Checkpoint]) -> None:
    config = dict(MODELS[name].config)
    checkpoint = checkpoint_of(config.pop("model_type"), **config)
    family = discover().family_for(checkpoint)
    model = family.model(family.config.read(checkpoint.config))
    assert len(model.cache_kinds()) > 1


def test_every_family_has_one(checkpoint_of: Callable[..., Checkpoint]) -> None:
    registry = discover()
    taken = {
        registry.family_for(checkpoint_of(**dict(model.config))).name for model in MODELS.values()
    }
    assert taken == {row.name for row in registry.listing().families if row.distribution == "phyla"}
