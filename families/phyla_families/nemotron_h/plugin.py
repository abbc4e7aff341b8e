"""Nemotron-H: the hybrids of 2025, Nano v2, Nemotron 3, Puzzle, Omni, and the text part of VL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phyla.family import Family
from phyla.hooks import hookimpl
from phyla_families.nemotron_h.config import Config
from phyla_families.nemotron_h.dialect import dialect
from phyla_families.nemotron_h.media import media
from phyla_families.nemotron_h.omni import build
from phyla_families.nemotron_h.siblings import SIBLINGS
from phyla_families.nemotron_h.weights import rules

if TYPE_CHECKING:
    from collections.abc import Iterable


NEMOTRON_H = Family(
    name="nemotron_h",
    model_types=(
        "nemotron_h",
        "nemotron_h_puzzle",
        "NemotronH_Nano_VL_V2",
        "NemotronH_Nano_Omni_Reasoning_V3",
        "NemotronH_Omni_Reasoning_V3",
        "nemotron_h_omni",
        "nemotronh_nano_omni_reasoning_v3",
    ),
    config=Config,
    model=build,
    weights=rules,
    dialect=dialect,
    media=media,
    siblings=SIBLINGS,
)


@hookimpl
def phyla_provide_families() -> Iterable[Family]:
    return [NEMOTRON_H]
