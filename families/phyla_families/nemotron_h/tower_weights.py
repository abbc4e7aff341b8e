"""The names of the towers' tensors, as rules: NVIDIA's, those of transformers, MLX conversions.

Kernels lie with the channels last in MLX conversions, and as PyTorch has them elsewhere; the shapes
tell. A converter may have turned some and not others, so each kind is looked at by itself.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from phyla.family import Drop, Rename, Split, Transpose, WeightRule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from phyla.checkpoint import Checkpoint
    from phyla_families.nemotron_h.config import Config
    from phyla_families.nemotron_h.omni_config import SoundConfig, VisionConfig

_SEEN = r"(vision_model|vision_projector|vision_final_layernorm|mlp1|multi_modal_projector)\..*"
_HEARD = r"(sound_encoder|sound_projection|audio_tower|embed_audio)\..*"
_RADIO = r"vision_model\.radio_model\.model\."
_BLOCK = r"(vision_model\.layers\.\d+)\."
_EMBEDDINGS = {
    r"video_embedder\.(.*)": r"video_patch_projection.\1",
    r"embedder\.(.*)": r"patch_projection.\1",
    r"pos_embed": "position_embedding",
    r"cls_token\.token": "cls_register_token",
}
_PROJECTOR = {"0": "layer_norm", "1": "linear_1", "3": "linear_2"}


def tower_names(config: Config, checkpoint: Checkpoint) -> Sequence[WeightRule]:
    """Drop what is not built, lead the other names to ours; ours are left alone."""
    return [
        *([Drop(_SEEN)] if config.vision is None else _vision(config.vision)),
        *([Drop(_HEARD)] if config.sound is None else _sound(config.sound, checkpoint)),
    ]


def _vision(config: VisionConfig) -> list[WeightRule]:
    rules: list[WeightRule] = [
        # Pixels are scaled before the tower, and nobody asks it for a summary.
        Drop(r"vision_model\.(radio_model\.)?(summary_idxs|input_conditioner\..*)"),
        Drop(_RADIO + r"blocks\.\d+\.ls[12]\..*"),
        *(
            Rename(_RADIO + r"patch_generator\." + theirs, f"vision_model.embeddings.{ours}")
            for theirs, ours in _EMBEDDINGS.items()
        ),
        Rename(
            rf"(?:{_RADIO}blocks|vision_model\.encoder\.layer)\.(.*)", r"vision_model.layers.\1"
        ),
        Split(
            _BLOCK + r"attn\.qkv\.(.*)",
            (r"\1.self_attn.q_proj.\2", r"\1.self_attn.k_proj.\2", r"\1.self_attn.v_proj.\2"),
        ),
        Rename(_BLOCK + r"attn\.proj\.(.*)", r"\1.self_attn.out_proj.\2"),
        Rename(_BLOCK + r"attention\.o_proj\.(.*)", r"\1.self_attn.out_proj.\2"),
        Rename(_BLOCK + r"attention\.(.*)", r"\1.self_attn.\2"),
        Rename(r"vision_projector\.(vision_final_layernorm\..*)", r"\1"),
        *(
            Rename(rf"mlp1\.(?:layers\.)?{theirs}\.(.*)", rf"multi_modal_projector.{ours}.\1")
            for theirs, ours in _PROJECTOR.items()
        ),
    ]
    if config.span is None:
        rules.append(Drop(r"vision_model\.embeddings\.video_patch_projection\..*"))
    return rules


def _sound(config: SoundConfig, checkpoint: Checkpoint) -> list[WeightRule]:
    rules: list[WeightRule] = [
        Rename(r"sound_encoder\.encoder\.(.*)", r"audio_tower.\1"),
        Rename(r"sound_projection\.norm\.(.*)", r"embed_audio.layer_norm.\1"),
        Rename(r"sound_projection\.linear([12])\.(.*)", r"embed_audio.linear_\1.\2"),
        # Filters and window of the spectrogram, which are computed, and a count of training steps.
        Drop(r"audio_tower\.(feature_extractor|encode_positions)\..*"),
        Drop(r"audio_tower\..*\.num_batches_tracked"),
        *_kernels(config, checkpoint),
    ]
    if not config.convolution_bias:
        rules.append(Drop(r"audio_tower\.layers\.\d+\.conv\.(pointwise|depthwise)_conv[12]?\.bias"))
    if not config.attention_bias:
        linear = r"(feed_forward[12]\.linear[12]|self_attn\.[qkvo]_proj)"
        rules.append(Drop(rf"audio_tower\.layers\.\d+\.{linear}\.bias"))
    return rules


def _kernels(config: SoundConfig, checkpoint: Checkpoint) -> list[WeightRule]:
    """Turn those whose last axis is not that of the inputs."""
    dim, channels = config.hidden_size, config.subsampling_conv_channels
    inputs = {r"subsampling\.layers\.0": 1}
    for number in range(config.halvings - 1):
        inputs[rf"subsampling\.layers\.{3 * number + 2}"] = 1
        inputs[rf"subsampling\.layers\.{3 * number + 3}"] = channels
    inputs |= {
        r"layers\.\d+\.conv\.pointwise_conv[12]": dim,
        r"layers\.\d+\.conv\.depthwise_conv": 1,
    }
    rules: list[WeightRule] = []
    for part, width in inputs.items():
        pattern = re.compile(rf"(sound_encoder\.encoder|audio_tower)\.{part}\.weight")
        shapes = [
            info.shape for name, info in checkpoint.tensors.items() if pattern.fullmatch(name)
        ]
        if shapes and shapes[0][-1] != width:
            axes = (0, 2, 3, 1) if len(shapes[0]) == 4 else (0, 2, 1)
            rules.append(Transpose(rf"audio_tower\.{part}\.weight", axes))
    return rules
