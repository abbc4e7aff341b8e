"""Checkpoint names of MiniCPM, which are a Llama's, as rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phyla.family import DecoderConfig, Drop, Rename, WeightRule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from phyla.checkpoint import Checkpoint


def rules(config: DecoderConfig, checkpoint: Checkpoint) -> Sequence[WeightRule]:
    """Names lose their `model.`; old MLX conversions hold a copy of the embedding as the head."""
    tied = [Drop(r"lm_head\..*")] if config.tied else []
    return [
        Drop(r".*\.rotary_emb\.inv_freq"),
        *tied,
        Rename(r"model\.(.*)", r"\1"),
    ]
