"""MiniCPM 1 to 4.1, MiniCPM3, MiniCPM5 (a Llama told by its template), MiniCPM-V 4.6 and 4.7."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phyla.family import Family
from phyla.hooks import hookimpl
from phyla_families.minicpm.config import Config, LlamaConfig
from phyla_families.minicpm.dialect import dialect
from phyla_families.minicpm.latent import build_latent
from phyla_families.minicpm.latent_config import LatentConfig
from phyla_families.minicpm.media import vision_media
from phyla_families.minicpm.model import build, build_llama
from phyla_families.minicpm.siblings import SIBLINGS
from phyla_families.minicpm.vision_config import VisionConfig
from phyla_families.minicpm.vision_model import VisionModel
from phyla_families.minicpm.vision_weights import vision_rules
from phyla_families.minicpm.weights import rules

if TYPE_CHECKING:
    from collections.abc import Iterable

    from phyla.checkpoint import Checkpoint


def is_minicpm(checkpoint: Checkpoint) -> bool:
    """The first releases have no `model_type`; their `architectures` name them."""
    names = checkpoint.config.get("architectures")
    named = isinstance(names, list | tuple) and "MiniCPMForCausalLM" in names
    return named or checkpoint.model_type == "minicpm"


def is_minicpm5(checkpoint: Checkpoint) -> bool:
    """MiniCPM5 calls itself `llama`; its template writes tool calls in a way of its own."""
    template = checkpoint.chat_template or ""
    return "<function name=" in template and "<param name=" in template


MINICPM = Family(
    name="minicpm",
    model_types=("minicpm",),
    config=Config,
    model=build,
    weights=rules,
    recognizes=is_minicpm,
    dialect=dialect,
    siblings=SIBLINGS,
)

MINICPM5 = Family(
    name="minicpm",
    model_types=("llama",),
    config=LlamaConfig,
    model=build_llama,
    weights=rules,
    recognizes=is_minicpm5,
    dialect=dialect,
)

MINICPM3 = Family(
    name="minicpm",
    model_types=("minicpm3",),
    config=LatentConfig,
    model=build_latent,
    weights=rules,
    dialect=dialect,
)

MINICPM_V = Family(
    name="minicpm",
    model_types=("minicpmv4_6", "minicpmv4_7"),
    config=VisionConfig,
    model=VisionModel,
    weights=vision_rules,
    media=vision_media,
    dialect=dialect,
)


@hookimpl
def phyla_provide_families() -> Iterable[Family]:
    return [MINICPM, MINICPM3, MINICPM5, MINICPM_V]
