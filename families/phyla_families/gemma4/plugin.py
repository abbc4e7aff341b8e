"""Gemma 4: E2B, E4B, 12B, 26B-A4B and 31B."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phyla.family import Family
from phyla.hooks import hookimpl
from phyla_families.gemma4.config import Config
from phyla_families.gemma4.dialect import dialect
from phyla_families.gemma4.media import media
from phyla_families.gemma4.model import build
from phyla_families.gemma4.siblings import SIBLINGS
from phyla_families.gemma4.weights import rules

if TYPE_CHECKING:
    from collections.abc import Iterable


GEMMA4 = Family(
    name="gemma4",
    model_types=("gemma4", "gemma4_text", "gemma4_unified", "gemma4_unified_text"),
    config=Config,
    model=build,
    weights=rules,
    dialect=dialect,
    media=media,
    siblings=SIBLINGS,
)


@hookimpl
def phyla_provide_families() -> Iterable[Family]:
    return [GEMMA4]
