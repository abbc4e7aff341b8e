"""From a checkpoint to a model that runs: choose the family, build, fill, and say how.

Runs on the engine's thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from phyla.backend import on_cpu, prepare
from phyla.engine.eos import eos_ids
from phyla.engine.layout import arrange_for_cpu
from phyla.engine.precision import Precision, available_memory, choose_precision
from phyla.engine.resolve import check_generation_config
from phyla.engine.tokenizer import Tokenizer
from phyla.engine.weights import load_weights
from phyla.nn import fuse

if TYPE_CHECKING:
    from phyla.checkpoint import Checkpoint
    from phyla.family import Dialect, Family, FamilyConfig, MediaReaders, Model


@dataclass(frozen=True, kw_only=True)
class Blueprint:
    """What is decided about a checkpoint before a weight is read."""

    checkpoint: Checkpoint
    family: Family
    config: FamilyConfig
    dialect: Dialect
    tokenizer: Tokenizer
    eos: frozenset[int]
    precision: Precision
    media: MediaReaders


def plan(checkpoint: Checkpoint, family: Family, *, dtype: str | None) -> Blueprint:
    """Read the config, the tokenizer and the dialect, and choose the precision.

    Raises:
        CheckpointError: one of the files is missing or broken, or generation_config.json recommends
            what no request could be run with.
        RequestError: `dtype` is no choice.
    """
    prepare()
    config = family.config.read(checkpoint.config).settle(checkpoint)
    dialect = family.dialect(checkpoint)
    tokenizer = Tokenizer(checkpoint.tokenizer())
    check_generation_config(
        checkpoint.generation_config, min(config.vocab_size, tokenizer.vocab_size)
    )
    return Blueprint(
        checkpoint=checkpoint,
        family=family,
        config=config,
        dialect=dialect,
        tokenizer=tokenizer,
        eos=eos_ids(checkpoint, tokenizer, dialect.extra_eos),
        media=family.media(config, checkpoint),
        precision=choose_precision(
            checkpoint, requested=dtype, cpu=on_cpu(), memory_bytes=available_memory()
        ),
    )


def build(blueprint: Blueprint) -> Model:
    """Build the model and fill it with the checkpoint's weights."""
    model = blueprint.family.model(blueprint.config)
    rules = blueprint.family.weights(blueprint.config, blueprint.checkpoint)
    load_weights(model, blueprint.checkpoint, rules, blueprint.precision)
    fuse(model)
    if on_cpu():
        arrange_for_cpu(model)
    model.eval()
    return model
