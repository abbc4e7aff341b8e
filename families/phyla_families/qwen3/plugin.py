"""Qwen3: the dense models and the mixtures of experts, Qwen3-Next, Qwen3.5, and Qwen3-VL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phyla.family import Family
from phyla.hooks import hookimpl
from phyla_families.qwen3.config import Config
from phyla_families.qwen3.dialect import dialect
from phyla_families.qwen3.hybrid import build as build_hybrid
from phyla_families.qwen3.hybrid_config import Config as HybridConfig
from phyla_families.qwen3.hybrid_weights import rules as hybrid_rules
from phyla_families.qwen3.media import media
from phyla_families.qwen3.model import build, build_vl
from phyla_families.qwen3.siblings import SIBLINGS
from phyla_families.qwen3.vl_config import VlConfig
from phyla_families.qwen3.vl_weights import rules as vl_rules
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
    siblings=SIBLINGS,
)

QWEN3_HYBRID = Family(
    name="qwen3",
    model_types=("qwen3_next", "qwen3_5", "qwen3_5_moe", "qwen3_5_text", "qwen3_5_moe_text"),
    config=HybridConfig,
    model=build_hybrid,
    weights=hybrid_rules,
    dialect=dialect,
    media=media,
)

QWEN3_VL = Family(
    name="qwen3",
    model_types=("qwen3_vl", "qwen3_vl_moe", "qwen3_vl_text", "qwen3_vl_moe_text"),
    config=VlConfig,
    model=build_vl,
    weights=vl_rules,
    dialect=dialect,
    media=media,
)


@hookimpl
def phyla_provide_families() -> Iterable[Family]:
    return [QWEN3, QWEN3_HYBRID, QWEN3_VL]
