"""Checkpoint names of MiniCPM-V 4.6 and 4.7, text and tower, as rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phyla.family import Drop, Rename, Transpose, WeightRule, expert_rules

if TYPE_CHECKING:
    from collections.abc import Sequence

    from phyla.checkpoint import Checkpoint
    from phyla_families.minicpm.vision_config import VisionConfig

_PATCHES = r"vision_tower\.embeddings\.patch_embedding\.weight"


def vision_rules(config: VisionConfig, checkpoint: Checkpoint) -> Sequence[WeightRule]:
    """Names as Hugging Face has them, as MLX conversions do, and as older releases did (`llm.`).

    Kernels are `[C, 1, K]` in Hugging Face files, whose norms lie around zero too. MLX conversions
    hold the window merger beside the tower.
    """
    prefixes = r"model\.language_model|language_model\.model|language_model|llm\.model|llm|model"
    kernels = Transpose(r"layers\.\d+\.linear_attn\.conv1d\.weight", (0, 2, 1))
    patches = Transpose(_PATCHES, (0, 2, 3, 1))
    return [
        Rename(rf"(?:{prefixes})\.(.*)", r"\1"),
        Rename(r"(?:vpm|visual)\.(.*)", r"vision_tower.\1"),
        Rename(r"vit_merger\.(.*)", r"vision_tower.vit_merger.\1"),
        Drop(r"vision_tower\.embeddings\.position_ids|resampler\..*"),
        *([Drop(r"(vision_tower|merger)\..*")] if config.vision is None else []),
        Drop(r"mtp\..*"),
        *([Drop(r"lm_head\..*")] if config.tied else []),
        *([kernels] if config.zero_centred else []),
        *([patches] if _channels_come_first(config, checkpoint) else []),
        *expert_rules(checkpoint, dim=config.hidden_size),
    ]


def _channels_come_first(config: VisionConfig, checkpoint: Checkpoint) -> bool:
    """Whether patches are `[D, 3, P, P]` as in Hugging Face files, not `[D, P, P, 3]`."""
    return config.vision is not None and any(
        name.endswith("embeddings.patch_embedding.weight")
        and len(tensor.shape) == 4
        and tensor.shape[-1] != config.vision.num_channels
        for name, tensor in checkpoint.tensors.items()
    )
