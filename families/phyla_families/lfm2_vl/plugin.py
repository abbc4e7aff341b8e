"""LFM2: the dense models, the mixtures of experts, and LFM2-VL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phyla.family import Family
from phyla.hooks import hookimpl
from phyla_families.lfm2_vl.config import Config
from phyla_families.lfm2_vl.dialect import dialect
from phyla_families.lfm2_vl.media import media
from phyla_families.lfm2_vl.model import build
from phyla_families.lfm2_vl.siblings import SIBLINGS
from phyla_families.lfm2_vl.weights import rules

if TYPE_CHECKING:
    from collections.abc import Iterable


LFM2_VL = Family(
    name="lfm2_vl",
    model_types=("lfm2", "lfm2_moe", "lfm2_vl", "lfm2-vl"),
    config=Config,
    model=build,
    weights=rules,
    dialect=dialect,
    media=media,
    siblings=SIBLINGS,
)


@hookimpl
def phyla_provide_families() -> Iterable[Family]:
    return [LFM2_VL]
