"""Checkpoint names of LFM2, LFM2-MoE and LFM2-VL, as rules."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from phyla.family import Drop, Rename, Split, Stack, Transpose, WeightRule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from phyla.checkpoint import Checkpoint
    from phyla_families.lfm2_vl.config import Config

_KERNEL = r"(.*\.)?layers\.\d+\.conv\.conv\.weight"
_ATTENTION = r"(layers\.\d+\.self_attn)"
_FORWARD = r"(layers\.\d+\.feed_forward)"
_EXPERTS = _FORWARD + r"\.experts"
_PART = r"\.(weight|scales|biases)"
_PROJECTOR_NORM = r"multi_modal_projector\.layer_norm\..*"
_PROJECTIONS = (("w1", "gate_proj"), ("w3", "up_proj"), ("w2", "down_proj"))


def rules(config: Config, checkpoint: Checkpoint) -> Sequence[WeightRule]:
    """The text part stands alone, or under `language_model.` beside a vision tower.

    The tower has one level more in the first releases, `vision_model`.

    Kernels are `[D, 1, K]` in Hugging Face files and `[D, K, 1]` in MLX conversions. Experts come
    one by one, fused (`gate_up_proj`), or stacked.
    """
    tied = [Drop(r"lm_head\..*")] if config.tied else []
    upstream = any(
        re.fullmatch(_KERNEL, name) and tensor.shape[-1] != 1
        for name, tensor in checkpoint.tensors.items()
    )
    return [
        *([Transpose(_KERNEL, (0, 2, 1))] if upstream else []),
        Rename(r"model\.(.*)", r"\1"),
        *_tower_rules(config),
        Rename(r"language_model\.(?:model\.)?(.*)", r"\1"),
        *tied,
        Rename(r"embedding_norm\.(.*)", r"norm.\1"),
        Rename(_ATTENTION + r"\.out_proj\.(.*)", r"\1.o_proj.\2"),
        Rename(_ATTENTION + r"\.([qk])_layernorm\.(.*)", r"\1.\2_norm.\3"),
        Rename(_FORWARD + r"\.gate" + _PART, r"\1.gate.proj.\2"),
        Rename(_FORWARD + r"\.expert_bias", r"\1.gate.expert_bias"),
        *(
            rule
            for theirs, ours in _PROJECTIONS
            for rule in (
                Rename(_FORWARD + rf"\.{theirs}{_PART}", rf"\1.{ours}.\2"),
                Stack(
                    _EXPERTS + rf"\.(?P<index>\d+)\.{theirs}{_PART}", rf"\1.switch_mlp.{ours}.\3"
                ),
            )
        ),
        Split(
            _EXPERTS + r"\.gate_up_proj",
            (r"\1.switch_mlp.gate_proj.weight", r"\1.switch_mlp.up_proj.weight"),
            axis=1,
        ),
        Rename(_EXPERTS + r"\.down_proj", r"\1.switch_mlp.down_proj.weight"),
    ]


def _tower_rules(config: Config) -> list[WeightRule]:
    """SigLIP 2's pooling head is not used; nor is a projector's norm that the config denies."""
    if config.vision_config is None:
        return [Drop(r"(vision_tower|vision_model|multi_modal_projector)\..*")]
    spare = [] if config.normalizes_patches else [Drop(_PROJECTOR_NORM)]
    return [
        Rename(r"vision_tower\.vision_model\.(.*)", r"vision_tower.\1"),
        Drop(r"vision_tower\.head\..*"),
        Rename(r"vision_tower\.encoder\.(.*)", r"vision_tower.\1"),
        *spare,
    ]
