"""The models of bench_media.py: towers of a published width with few layers, and a small text part.

Knows their configs, what their preprocessor files say, the tokens that stand for media, and where
the peer is known to compute something else; see media_pair.py for the weights.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from bench_peers.type_models import MODELS, VOCABULARY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True)
class MediaModel:
    """One model.

    Attributes:
        config: the content of config.json.
        marks: texts that the tokenizer has a token for.
        image: what the chat template writes for an image.
        preprocessing: the preprocessor files, by name.
        reads: what is measured.
        known: where the peer is known to compute something else, in words.
    """

    config: Mapping[str, Any]
    marks: Sequence[str]
    image: str
    preprocessing: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    reads: Sequence[Literal["image", "audio"]] = ("image",)
    known: str = ""


_QWEN_MARKS = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
_QWEN_IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"
_QWEN_FILE = {
    "preprocessor_config.json": {
        "size": {"shortest_edge": 65536, "longest_edge": 16777216}, "patch_size": 16,
        "merge_size": 2, "temporal_patch_size": 2,
    }
}  # fmt: skip
_QWEN_TOWER = {
    "patch_size": 16, "spatial_merge_size": 2, "temporal_patch_size": 2, "out_hidden_size": 512,
    "num_position_embeddings": 2304, "hidden_act": "gelu_pytorch_tanh",
}  # fmt: skip
_GEMMA_MARKS = (
    "<|image|>", "<|image>", "<image|>", "<|audio|>", "<|audio>", "<audio|>", "<|video|>",
)  # fmt: skip
_GEMMA_IDS = {
    "vocab_size": VOCABULARY, "image_token_id": 2040, "audio_token_id": 2041,
    "video_token_id": 2042, "boi_token_id": 2043, "eoi_token_id": 2044, "boa_token_id": 2045,
    "eoa_token_index": 2046, "tie_word_embeddings": True,
}  # fmt: skip


def _with(name: str, **changes: Any) -> dict[str, Any]:
    """The config of a model of bench.py --types, with other towers."""
    return {**MODELS[name].config, **changes}


MEDIA_MODELS: Mapping[str, MediaModel] = {
    "qwen3_vl": MediaModel(
        _with("qwen3_vl", vision_config={
            **_QWEN_TOWER, "depth": 4, "hidden_size": 1024, "num_heads": 16,
            "intermediate_size": 4096, "deepstack_visual_indexes": [1, 2],
        }),
        _QWEN_MARKS, _QWEN_IMAGE, _QWEN_FILE,
    ),
    "qwen3_5": MediaModel(
        _with("qwen3_5", vision_config={
            **_QWEN_TOWER, "depth": 4, "hidden_size": 768, "num_heads": 12,
            "intermediate_size": 3072, "deepstack_visual_indexes": [],
        }),
        _QWEN_MARKS, _QWEN_IMAGE, _QWEN_FILE,
    ),
    "gemma4": MediaModel(
        {
            **_GEMMA_IDS, "model_type": "gemma4",
            "text_config": dict(MODELS["gemma4"].config),
            "vision_config": {
                "model_type": "gemma4_vision", "hidden_size": 768, "intermediate_size": 3072,
                "num_hidden_layers": 4, "num_attention_heads": 12, "num_key_value_heads": 12,
                "head_dim": 64, "patch_size": 16, "pooling_kernel_size": 3,
                "position_embedding_size": 10240, "use_clipped_linears": True,
                "standardize": False, "default_output_length": 280,
                "rope_parameters": {"rope_theta": 100.0, "rope_type": "default"},
            },
            "audio_config": {
                "model_type": "gemma4_audio", "hidden_size": 1024, "num_hidden_layers": 4,
                "num_attention_heads": 8, "subsampling_conv_channels": [128, 32],
                "output_proj_dims": 1536, "use_clipped_linears": True,
            },
        },
        _GEMMA_MARKS, "<|image|>", reads=("image", "audio"),
    ),
    "gemma4_unified": MediaModel(
        {
            **_GEMMA_IDS, "model_type": "gemma4_unified",
            "text_config": MODELS["gemma4_unified"].config["text_config"],
            "vision_config": {
                "model_type": "gemma4_unified_vision", "patch_size": 16, "pooling_kernel_size": 3,
                "mm_embed_dim": 3840, "mm_posemb_size": 1120, "output_proj_dims": 3840,
            },
            "audio_config": {"model_type": "gemma4_unified_audio", "audio_embed_dim": 640},
        },
        _GEMMA_MARKS, "<|image|>", reads=("image", "audio"),
    ),
    "lfm2_vl": MediaModel(
        {
            "model_type": "lfm2_vl", "vocab_size": VOCABULARY, "image_token_id": 2040,
            "downsample_factor": 2, "projector_hidden_size": 2560,
            "projector_use_layernorm": False, "tie_word_embeddings": True,
            "text_config": dict(MODELS["lfm2"].config),
            "vision_config": {
                "model_type": "siglip2_vision_model", "hidden_size": 768,
                "intermediate_size": 3072, "num_hidden_layers": 4, "num_attention_heads": 12,
                "patch_size": 16, "num_patches": 256, "vision_use_head": False,
            },
        },
        ("<image>", "<|image_start|>", "<|image_end|>", "<|img_thumbnail|>"), "<image>",
        # The programs' defaults differ.
        {"preprocessor_config.json": {"resample": 2}},
    ),
    "minicpmv4_6": MediaModel(
        _with("minicpmv4_6", insert_layer_id=1, image_size=980, vision_config={
            "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 4,
            "num_attention_heads": 16, "image_size": 980, "patch_size": 14,
        }),
        ("<|image_pad|>", "<|video_pad|>", "<image>", "</image>", "<slice>", "</slice>",
         "<image_id>", "</image_id>"),
        "<|image_pad|>",
        known="its merger has an approximated GELU for the exact one",
    ),
    "nemotron_h_omni": MediaModel(
        {
            "model_type": "nemotron_h_omni", "architectures": ["NemotronH_Omni_Reasoning_V3"],
            "vocab_size": VOCABULARY, "llm_config": dict(MODELS["nemotron_h"].config),
            "vision_config": {
                "hidden_size": 1280, "num_hidden_layers": 4, "num_attention_heads": 16,
                "mlp_ratio": 4.0, "patch_size": 16, "max_img_size": 2048,
                "video_temporal_patch_size": 2,
                # How many learned tokens there are, for mlx-vlm: one a teacher, up to ten.
                "args": {
                    "teachers": [{"name": "a"}, {"name": "b"}, {"name": "c"}],
                    "register_multiple": 10, "cpe_max_size": 2048,
                },
            },
            "sound_config": {
                "hidden_size": 1024, "num_hidden_layers": 4,
                "num_attention_heads": 8, "intermediate_size": 4096, "conv_kernel_size": 9,
                "convolution_bias": False, "subsampling_conv_channels": 256,
                "subsampling_factor": 8, "num_mel_bins": 128, "projection_hidden_size": 4096,
                "projection_bias": False,
            },
            "vit_hidden_size": 1280, "projector_hidden_size": 4096, "downsample_ratio": 0.5,
            "ps_version": "v2", "video_temporal_patch_size": 2, "img_context_token_id": 2040,
            "video_context_token_id": 2041, "sound_context_token_id": 2042,
        },
        ("<image>", "<video>", "<so_embedding>", "<img>", "</img>", "<so_start>", "<so_end>"),
        "<image>",
        {"preprocessor_config.json": {
            "patch_size": 16, "downsample_ratio": 0.5, "min_num_patches": 1024,
            "max_num_patches": 13312, "max_model_len": 16384,
            "norm_mean": [0.48145466, 0.4578275, 0.40821073],
            "norm_std": [0.26862954, 0.26130258, 0.27577711],
        }},
        reads=("image", "audio"),
    ),
}  # fmt: skip
