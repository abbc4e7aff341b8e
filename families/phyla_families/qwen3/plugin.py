"""Qwen3: the dense models and the mixtures of experts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phyla.family import Family
from phyla.hooks import hookimpl
from phyla_families.qwen3.config import Config
from phyla_families.qwen3.dialect import dialect
from phyla_families.qwen3.model import build
from phyla_families.qwen3.weights import rules

if TYPE_CHECKING:
    from collections.abc import Iterable


QWEN3 = Family(
    name="qwen3",
    model_types=("qwen3", "qwen3_moe"),
    config=Config,
    model=build,
    weights=rules,
    dialect=dialect,
)


@hookimpl
def phyla_provide_families() -> Iterable[Family]:
    return [QWEN3]
