"""The names of the vision tower's tensors, as rules.

It is called `model.visual` by Hugging Face, `visual` in the first releases, and `vision_tower` in
MLX conversions, whose kernel lies with the channels last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from phyla.family import Drop, Rename, Split, Transpose, WeightRule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from phyla.checkpoint import Checkpoint
    from phyla_families.qwen3.vision_config import VisionConfig

_KERNEL = "patch_embed.proj.weight"
_BLOCK = r"(visual\.blocks\.\d+)\."


def vision_names(vision: VisionConfig | None, checkpoint: Checkpoint) -> Sequence[WeightRule]:
    """Drop the tower where it is not built, else lead its names to ours; ours are left alone."""
    if vision is None:
        return [Drop(r"(model\.)?(visual|vision_tower)\..*")]
    kernels: list[WeightRule] = []
    if _channels_first(vision, checkpoint):
        kernels = [Transpose(r"visual\." + _KERNEL.replace(".", r"\."), (0, 2, 3, 4, 1))]
    return [
        Rename(r"(?:model\.)?(?:visual|vision_tower)\.(.*)", r"visual.\1"),
        *kernels,
        Rename(_BLOCK + r"norm([12])\.(.*)", r"\1.layer_norm\2.\3"),
        Split(
            _BLOCK + r"attn\.qkv\.(.*)",
            (r"\1.self_attn.q_proj.\2", r"\1.self_attn.k_proj.\2", r"\1.self_attn.v_proj.\2"),
        ),
        Rename(_BLOCK + r"attn\.proj\.(.*)", r"\1.self_attn.out_proj.\2"),
        Rename(_BLOCK + r"mlp\.linear_(fc[12])\.(.*)", r"\1.mlp.\2.\3"),
    ]


def _channels_first(vision: VisionConfig, checkpoint: Checkpoint) -> bool:
    """Whether the kernel is `[D, 3, P_t, P, P]`, not `[D, P_t, P, P, 3]`."""
    size, span = vision.patch_size, vision.temporal_patch_size
    return any(
        name.endswith(_KERNEL) and tensor.shape[1:] == (vision.in_channels, span, size, size)
        for name, tensor in checkpoint.tensors.items()
    )
