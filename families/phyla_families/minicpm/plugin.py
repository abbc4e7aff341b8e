"""MiniCPM: versions 1 to 4.1, and MiniCPM5, which is a Llama told by its chat template."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phyla.family import Family
from phyla.hooks import hookimpl
from phyla_families.minicpm.config import Config, LlamaConfig
from phyla_families.minicpm.dialect import dialect
from phyla_families.minicpm.model import build, build_llama
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


@hookimpl
def phyla_provide_families() -> Iterable[Family]:
    return [MINICPM, MINICPM5]
