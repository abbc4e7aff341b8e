"""How checkpoints lay out the MLPs of a mixture of experts, as rules."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from phyla.family.weights import Rename, Split, Stack, Transpose, WeightRule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from phyla.checkpoint import Checkpoint

_EXPERTS = r"(.*\.mlp)\.experts"
_FUSED = re.compile(r".*\.mlp\.experts\.(gate_up_proj|down_proj)")


def expert_rules(checkpoint: Checkpoint, *, dim: int) -> Sequence[WeightRule]:
    """From `mlp.experts` in any of its forms to `mlp.switch_mlp.{gate,up,down}_proj.weight`.

    The experts come one by one, or stacked under the final names, or fused: `gate_up_proj` holds
    gates, then ups, and with `down_proj` has the experts first and no `.weight` after its name.
    Fused ones lie as `[out, in]`, or as `[in, out]` in what the first releases published.

    Args:
        checkpoint: the files.
        dim: width of the hidden states, by which the two are told apart.
    """
    turned: list[WeightRule] = []
    if _lies_in_out(checkpoint, dim):
        turned = [Transpose(_EXPERTS + r"\.(gate_up|down)_proj", (0, 2, 1))]
    return [
        Stack(
            _EXPERTS + r"\.(?P<index>\d+)\.(gate|up|down)_proj\.(weight|scales|biases)",
            r"\1.switch_mlp.\3_proj.\4",
        ),
        *turned,
        Split(
            _EXPERTS + r"\.gate_up_proj",
            (r"\1.switch_mlp.gate_proj.weight", r"\1.switch_mlp.up_proj.weight"),
            axis=1,
        ),
        Rename(_EXPERTS + r"\.down_proj", r"\1.switch_mlp.down_proj.weight"),
    ]


def _lies_in_out(checkpoint: Checkpoint, dim: int) -> bool:
    """Whether fused experts are to be transposed.

    `gate_up_proj` cannot tell where twice an expert's width is `dim`, nor `down_proj` where it is
    `dim`; never are both so.
    """
    for name, tensor in checkpoint.tensors.items():
        match = _FUSED.fullmatch(name)
        if match is None or len(tensor.shape) != 3 or tensor.shape[1] == tensor.shape[2]:
            continue
        reads_dim = match[1] == "gate_up_proj"
        return tensor.shape[1 if reads_dim else 2] == dim
    return False
