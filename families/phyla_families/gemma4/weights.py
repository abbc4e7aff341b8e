"""Checkpoint names of Gemma 4, as rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phyla.family import Drop, Rename, Split, Stack, WeightRule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from phyla.checkpoint import Checkpoint
    from phyla_families.gemma4.config import Config

_TOWERS = r"(vision_tower|audio_tower|embed_vision|embed_audio|vision_embedder)"
_EXPERTS = r"(layers\.\d+\.experts)"


def rules(config: Config, checkpoint: Checkpoint) -> Sequence[WeightRule]:
    """The text part under every prefix; experts come one by one, fused, or stacked.

    Google's files hold keys and values for layers that read another's, and files saved by
    transformers do not; they have no use. So have a head that is tied, and the drafting layers.
    """
    tied = [Drop(r"lm_head\..*")] if config.tied else []
    return [
        Drop(rf"(model\.)?{_TOWERS}\..*"),
        # `model.language_model.` of transformers, `language_model.model.` of MLX conversions,
        # `model.` of text-only files.
        Rename(r"(?:model\.)?(?:language_model\.)?(?:model\.)?(.*)", r"\1"),
        Drop(r"mtp\..*"),
        *tied,
        *_without_keys(range(config.first_shared_layer, config.num_hidden_layers)),
        Stack(
            _EXPERTS + r"\.(?P<index>\d+)\.(gate|up|down)_proj\.(weight|scales|biases)",
            r"\1.\3_proj.\4",
        ),
        Split(
            _EXPERTS + r"\.gate_up_proj",
            (r"\1.gate_proj.weight", r"\1.up_proj.weight"),
            axis=1,
        ),
        Rename(_EXPERTS + r"\.down_proj", r"\1.down_proj.weight"),
        Rename(_EXPERTS + r"\.switch_glu\.(.*)", r"\1.\2"),
    ]


def _without_keys(layers: range) -> list[WeightRule]:
    if not layers:
        return []
    numbers = "|".join(map(str, layers))
    return [Drop(rf"layers\.({numbers})\.self_attn\.[kv]_(proj|norm)\..*")]
