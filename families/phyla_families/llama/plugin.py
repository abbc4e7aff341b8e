"""Plain Llama and what is shaped like it: SmolLM2, Llama 2 and 3, and their kin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phyla.family import Dialect, Family
from phyla.hooks import hookimpl
from phyla_families.llama.config import Config
from phyla_families.llama.model import build
from phyla_families.llama.weights import rules

if TYPE_CHECKING:
    from collections.abc import Iterable

    from phyla.checkpoint import Checkpoint


def dialect(checkpoint: Checkpoint) -> Dialect:
    """Turns end with Llama 3's or ChatML's token, where the vocabulary has one."""
    return Dialect(name="llama", extra_eos=("<|eot_id|>", "<|eom_id|>", "<|im_end|>"))


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
