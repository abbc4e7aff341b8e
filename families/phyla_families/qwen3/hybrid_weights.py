"""Checkpoint names of Qwen3-Next and Qwen3.5, as rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phyla.family import Transpose, WeightRule, expert_rules
from phyla_families.qwen3.text_names import text_names
from phyla_families.qwen3.vision_weights import vision_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from phyla.checkpoint import Checkpoint
    from phyla_families.qwen3.hybrid_config import Config


def rules(config: Config, checkpoint: Checkpoint) -> Sequence[WeightRule]:
    """Kernels are `[C, 1, K]` in Hugging Face files, whose norms lie around zero too."""
    kernels = Transpose(r"layers\.\d+\.linear_attn\.conv1d\.weight", (0, 2, 1))
    return [
        *vision_names(config.vision, checkpoint),
        *text_names(tied=config.tied),
        *([kernels] if config.zero_centred else []),
        *expert_rules(checkpoint, dim=config.hidden_size),
    ]
