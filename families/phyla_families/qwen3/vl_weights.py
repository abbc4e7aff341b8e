"""Checkpoint names of Qwen3-VL, as rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phyla.family import WeightRule, expert_rules
from phyla_families.qwen3.text_names import text_names
from phyla_families.qwen3.vision_weights import vision_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from phyla.checkpoint import Checkpoint
    from phyla_families.qwen3.vl_config import VlConfig


def rules(config: VlConfig, checkpoint: Checkpoint) -> Sequence[WeightRule]:
    """Experts of the published files lie as `[in, out]`, those that transformers saves do not."""
    return [
        *vision_names(config.vision, checkpoint),
        *text_names(tied=config.tied),
        *expert_rules(checkpoint, dim=config.hidden_size),
    ]
