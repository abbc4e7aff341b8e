"""Checkpoint names of Nemotron-H, as rules."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from phyla.errors import CheckpointError
from phyla.family import Drop, Rename, Stack, Transpose, WeightRule
from phyla_families.nemotron_h.tower_weights import tower_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from phyla.checkpoint import Checkpoint
    from phyla_families.nemotron_h.config import Config

_KERNEL = r"(.*\.)?layers\.\d+\.mixer\.conv1d\.weight"
_MIXER = r"(layers\.\d+\.mixer)"
_PART = r"\.(weight|scales|biases)"


def rules(config: Config, checkpoint: Checkpoint) -> Sequence[WeightRule]:
    """Names lose `backbone.` or `model.`; the text part of Omni and VL lies in `language_model.`.

    Kernels are `[C, 1, K]` in Hugging Face files and `[C, K, 1]` in MLX conversions. Experts come
    one by one, stacked under transformers' names, or stacked as `fc1` and `fc2`. What predicts
    several tokens at once (`mtp`) is dropped.

    Raises:
        CheckpointError: the weights are packed by NVIDIA's ModelOpt.
    """
    _refuse_modelopt(checkpoint)
    upstream = any(
        re.fullmatch(_KERNEL, name) and tensor.shape[-1] != 1
        for name, tensor in checkpoint.tensors.items()
    )
    return [
        *([Transpose(_KERNEL, (0, 2, 1))] if upstream else []),
        Drop(r"(.*\.)?mtp\..*"),
        *tower_names(config, checkpoint),
        Rename(r"language_model\.(.*)", r"\1"),
        Rename(r"(?:backbone|model)\.(.*)", r"\1"),
        Rename(_MIXER + r"\.gate" + _PART, r"\1.gate.proj.\2"),
        Rename(_MIXER + r"\.gate\.e_score_correction_bias", r"\1.gate.expert_bias"),
        Stack(
            _MIXER + r"\.experts\.(?P<index>\d+)\.(up|down)_proj" + _PART,
            r"\1.switch_mlp.\3_proj.\4",
        ),
        Rename(_MIXER + r"\.experts\.(up|down)_proj", r"\1.switch_mlp.\2_proj.weight"),
        Rename(_MIXER + r"\.switch_mlp\.fc1" + _PART, r"\1.switch_mlp.up_proj.\2"),
        Rename(_MIXER + r"\.switch_mlp\.fc2" + _PART, r"\1.switch_mlp.down_proj.\2"),
    ]


def _refuse_modelopt(checkpoint: Checkpoint) -> None:
    scale = next((name for name in checkpoint.tensors if name.endswith(".weight_scale")), None)
    if scale is not None:
        raise CheckpointError(
            "The weights are packed by NVIDIA's ModelOpt (FP8 or NVFP4), which Phyla does not read.",
            field=scale,
            hint="Use the BF16 checkpoint, or an MLX conversion of it.",
        )
