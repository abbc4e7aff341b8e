"""Plain Llama and what is shaped like it: SmolLM2, Llama 2 and 3, and their kin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phyla.family import Family
from phyla.hooks import hookimpl
from phyla_families.llama.config import Config
from phyla_families.llama.dialect import dialect
from phyla_families.llama.model import build
from phyla_families.llama.weights import rules

if TYPE_CHECKING:
    from collections.abc import Iterable


LLAMA = Family(
    name="llama",
    model_types=("llama",),
    config=Config,
    model=build,
    weights=rules,
    dialect=dialect,
)


@hookimpl
def phyla_provide_families() -> Iterable[Family]:
    return [LLAMA]
