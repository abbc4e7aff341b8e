"""Checkpoint names of Qwen3 and Qwen3-MoE, as rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phyla.family import Drop, Rename, Split, Stack, WeightRule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from phyla.checkpoint import Checkpoint
    from phyla_families.qwen3.config import Config

_EXPERTS = r"(layers\.\d+\.mlp)\.experts"


def rules(config: Config, checkpoint: Checkpoint) -> Sequence[WeightRule]:
    """Names lose their `model.`; experts come one by one, fused (`gate_up_proj`), or stacked."""
    tied = [Drop(r"lm_head\..*")] if config.tied else []
    return [
        *tied,
        Rename(r"model\.(.*)", r"\1"),
        Stack(
            _EXPERTS + r"\.(?P<index>\d+)\.(gate|up|down)_proj\.(weight|scales|biases)",
            r"\1.switch_mlp.\3_proj.\4",
        ),
        Split(
            _EXPERTS + r"\.gate_up_proj",
            (r"\1.switch_mlp.gate_proj.weight", r"\1.switch_mlp.up_proj.weight"),
            axis=1,
        ),
        Rename(_EXPERTS + r"\.down_proj", r"\1.switch_mlp.down_proj.weight"),
    ]
