"""Checkpoint names of Gemma 4, as rules."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from phyla.family import Drop, Rename, Split, Stack, Transpose, WeightRule
from phyla_families.gemma4.media_config import ConformerConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

    from phyla.checkpoint import Checkpoint
    from phyla_families.gemma4.config import Config

_VISION = r"(vision_tower|vision_embedder|embed_vision)"
_AUDIO = r"(audio_tower|embed_audio)"
# Transformers keeps the encoder-free model's embedding of patches together with the projector.
_EMBEDDING = r"(patch_ln1|patch_dense|patch_ln2|pos_norm|pos_embedding)"
_CONVOLUTION = r"audio_tower\.subsample_conv_projection\.layer[01]\.conv\.weight"
_FILTER = r"audio_tower\.layers\.\d+\.lconv1d\.depthwise_conv1d\.weight"
_EXPERTS = r"(layers\.\d+\.experts)"


def rules(config: Config, checkpoint: Checkpoint) -> Sequence[WeightRule]:
    """All under every prefix; experts come one by one, fused, or stacked.

    Google's files hold keys and values for layers that read another's, and files saved by
    transformers do not; they have no use. So have a head that is tied, and the drafting layers.
    """
    tied = [Drop(r"lm_head\..*")] if config.tied else []
    return [
        # `model.language_model.` of transformers, `language_model.model.` of MLX conversions,
        # `model.` of text-only files.
        Rename(r"(?:model\.)?(?:language_model\.)?(?:model\.)?(.*)", r"\1"),
        Drop(r"mtp\..*"),
        *_media(config, checkpoint),
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


def _media(config: Config, checkpoint: Checkpoint) -> list[WeightRule]:
    """The towers, where there are any; what a conversion left of others has no use."""
    rules: list[WeightRule] = []
    if config.vision is None:
        rules.append(Drop(rf"{_VISION}\..*"))
    else:
        rules += [
            Rename(rf"embed_vision\.({_EMBEDDING}.*)", r"vision_embedder.\1"),
            Rename(r"embed_vision\.multimodal_embedder\.(.*)", r"embed_vision.\1"),
        ]
    if config.audio is None:
        rules.append(Drop(rf"{_AUDIO}\..*"))
    elif isinstance(config.audio, ConformerConfig):
        rules += _convolutions(config.audio, checkpoint)
    return rules


def _convolutions(config: ConformerConfig, checkpoint: Checkpoint) -> list[WeightRule]:
    """Kernels with channels last, as MLX has them; conversions hold them so, others do not."""
    shapes = {name.removeprefix("model."): info.shape for name, info in checkpoint.tensors.items()}
    rules: list[WeightRule] = []
    for name, shape in shapes.items():
        if re.fullmatch(_CONVOLUTION, name):
            inputs = 1 if ".layer0." in name else config.subsampling_conv_channels[0]
            if shape[-1] != inputs:
                rules.append(Transpose(re.escape(name), (0, 2, 3, 1)))
        elif re.fullmatch(_FILTER, name) and shape[-1] != 1:
            rules.append(Transpose(re.escape(name), (0, 2, 1)))
    return rules


def _without_keys(layers: range) -> list[WeightRule]:
    if not layers:
        return []
    numbers = "|".join(map(str, layers))
    return [Drop(rf"layers\.({numbers})\.self_attn\.[kv]_(proj|norm)\..*")]
