"""Checkpoint names of a Llama, as rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phyla.family import Drop, Rename, WeightRule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from phyla.checkpoint import Checkpoint
    from phyla_families.llama.config import Config


def rules(config: Config, checkpoint: Checkpoint) -> Sequence[WeightRule]:
    """The names lose their `model.`; old files carry the rotary buffer, tied ones a second head."""
    tied = [Drop(r"lm_head\..*")] if config.tied else []
    return [
        Drop(r".*\.rotary_emb\.inv_freq"),
        *tied,
        Rename(r"model\.(.*)", r"\1"),
    ]
