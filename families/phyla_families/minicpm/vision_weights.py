"""Checkpoint names of the text part of MiniCPM-V 4.6 and 4.7, as rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phyla.family import Drop, Rename, Transpose, WeightRule, expert_rules

if TYPE_CHECKING:
    from collections.abc import Sequence

    from phyla.checkpoint import Checkpoint
    from phyla_families.minicpm.vision_config import VisionConfig

_TOWER = "vision_tower|vit_merger|merger|vpm|resampler"


def vision_rules(config: VisionConfig, checkpoint: Checkpoint) -> Sequence[WeightRule]:
    """Names as Hugging Face has them, as MLX conversions do, and as older releases did (`llm.`).

    Kernels are `[C, 1, K]` in Hugging Face files, whose norms lie around zero too.
    """
    prefixes = r"model\.language_model|language_model\.model|language_model|llm\.model|llm|model"
    kernels = Transpose(r"layers\.\d+\.linear_attn\.conv1d\.weight", (0, 2, 1))
    return [
        Drop(rf"(model\.)?({_TOWER})\..*"),
        Rename(rf"(?:{prefixes})\.(.*)", r"\1"),
        Drop(r"mtp\..*"),
        *([Drop(r"lm_head\..*")] if config.tied else []),
        *([kernels] if config.zero_centred else []),
        *expert_rules(checkpoint, dim=config.hidden_size),
    ]
