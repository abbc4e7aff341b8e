"""Completes a checkpoint that lacks files, as far as its config.json tells, to be reported on.

Nothing that comes of it can run: its weights are names and shapes, its tokenizer knows no token.
Imports MLX only when it is asked to.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from phyla.checkpoint import TensorInfo, TokenizerData

if TYPE_CHECKING:
    import mlx.core as mx

    from phyla.checkpoint import Checkpoint
    from phyla.engine.loading import Blueprint
    from phyla.family import Family, FamilyConfig

WEIGHTS = "weights (*.safetensors)"
TOKENIZER = "tokenizer.json"

_NO_TOKENS = TokenizerData(
    json='{"version": "1.0", "added_tokens": [],'
    ' "model": {"type": "BPE", "vocab": {}, "merges": []}}'
)


def missing_files(checkpoint: Checkpoint) -> tuple[str, ...]:
    """What the model needs to run and its folder does not have: `WEIGHTS`, `TOKENIZER` or both."""
    if checkpoint.format != "safetensors":
        return ()
    weights = () if checkpoint.tensors else (WEIGHTS,)
    return weights if (checkpoint.path / TOKENIZER).exists() else (*weights, TOKENIZER)


def complete(checkpoint: Checkpoint, family: Family, *, dtype: str | None) -> Blueprint:
    """What would be decided about the model if nothing were missing.

    Without weights the config is taken at its word, where a file would decide: a tower that it
    describes is there, and so is a head that it does not tie.

    Args:
        checkpoint: a checkpoint with `missing_files`.
        family: the family that would run it.
        dtype: as for `phyla.load`.

    Raises:
        CheckpointError: a file that is there is broken.
        RequestError: `dtype` is no choice.
    """
    from phyla.backend import on_cpu
    from phyla.engine.eos import eos_ids
    from phyla.engine.loading import Blueprint
    from phyla.engine.precision import available_memory, choose_precision
    from phyla.engine.resolve import check_generation_config
    from phyla.engine.tokenizer import Tokenizer

    missing = missing_files(checkpoint)
    config = family.config.read(checkpoint.config)
    whole = _with_weights(checkpoint, family, config) if WEIGHTS in missing else checkpoint
    if whole is checkpoint:
        config = config.settle(checkpoint)
    data = _NO_TOKENS if TOKENIZER in missing else checkpoint.tokenizer()
    tokenizer, dialect = Tokenizer(data), family.dialect(checkpoint)
    ids = config.vocab_size
    if TOKENIZER not in missing:
        ids = min(ids, tokenizer.vocab_size)
    check_generation_config(checkpoint.generation_config, ids)
    return Blueprint(
        checkpoint=whole,
        family=family,
        config=config,
        dialect=dialect,
        tokenizer=tokenizer,
        eos=eos_ids(checkpoint, tokenizer, dialect.extra_eos),
        media=family.media(config, checkpoint),
        precision=choose_precision(
            whole, requested=dtype, cpu=on_cpu(), memory_bytes=available_memory()
        ),
    )


def _with_weights(checkpoint: Checkpoint, family: Family, config: FamilyConfig) -> Checkpoint:
    """The checkpoint with a tensor for each parameter of the model, under the model's names."""
    from mlx.utils import tree_flatten

    # Its arrays are lazy: building it costs neither memory nor time.
    parameters: dict[str, mx.array] = dict(tree_flatten(family.model(config).parameters()))
    tensors = {
        name: TensorInfo(name, parameter.shape, "BF16", 2 * math.prod(parameter.shape), "")
        for name, parameter in parameters.items()
    }
    return replace(checkpoint, tensors=tensors)
