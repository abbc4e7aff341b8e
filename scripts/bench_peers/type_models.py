"""The models of bench.py --types: small ones of every model type, large enough that products count.

Each has every kind of block of its type. Knows their configs, and what is known of a peer that
runs them; see write_model.py for the weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

VOCABULARY = 2048
DRAWN = 2000
"""Ids below this are drawn for prompts; placeholders of media lie above."""


@dataclass(frozen=True)
class TypeModel:
    """One row of the table.

    Attributes:
        config: the content of config.json.
        peer: the program to compare with.
        prefix: what the peer's names of parameters have before Phyla's, for an architecture that
            transformers does not have; None for one that it has.
        fused: whether a layer's experts lie in two tensors, as this type's published files have
            them; one by one otherwise.
        known: where the peer is known to compute something else, in words.
    """

    config: Mapping[str, Any]
    peer: Literal["mlx-lm", "mlx-vlm"] = "mlx-lm"
    prefix: str | None = None
    fused: bool = False
    known: str = ""


_TEXT: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 512, "intermediate_size": 1536,
    "num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64,
    "rms_norm_eps": 1e-6, "max_position_embeddings": 8192, "rope_theta": 10000.0,
    "hidden_act": "silu", "attention_bias": False, "tie_word_embeddings": False,
}  # fmt: skip
_EXPERTS: dict[str, Any] = {
    "num_hidden_layers": 4, "num_experts": 16, "num_experts_per_tok": 4,
    "moe_intermediate_size": 384, "decoder_sparse_step": 1, "mlp_only_layers": [],
    "norm_topk_prob": True,
}  # fmt: skip
_DELTA: dict[str, Any] = {
    "full_attention_interval": 4, "linear_num_key_heads": 4, "linear_num_value_heads": 8,
    "linear_key_head_dim": 64, "linear_value_head_dim": 64, "linear_conv_kernel_dim": 4,
}  # fmt: skip
_MROPE: dict[str, Any] = {
    "rope_theta": 10000.0, "rope_type": "default", "partial_rotary_factor": 0.25,
    "mrope_section": [3, 3, 2], "mrope_interleaved": True,
}  # fmt: skip
_QWEN_MEDIA: dict[str, Any] = {
    "vocab_size": VOCABULARY, "image_token_id": 2040, "video_token_id": 2041,
    "vision_start_token_id": 2042, "vision_end_token_id": 2043,
    "vision_config": {
        "depth": 1, "hidden_size": 32, "num_heads": 2, "intermediate_size": 48, "patch_size": 4,
        "out_hidden_size": 512, "num_position_embeddings": 16, "deepstack_visual_indexes": [],
    },
}  # fmt: skip
_GEMMA: dict[str, Any] = {
    **{key: _TEXT[key] for key in _TEXT if key not in ("hidden_act", "rope_theta")},
    "vocab_size_per_layer_input": VOCABULARY, "num_global_key_value_heads": 1,
    "global_head_dim": 128, "sliding_window": 256, "num_kv_shared_layers": 0,
    "attention_k_eq_v": False, "hidden_size_per_layer_input": 0, "use_double_wide_mlp": False,
    "enable_moe_block": False, "hidden_activation": "gelu_pytorch_tanh", "pad_token_id": 0,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2,
    "final_logit_softcapping": 30.0, "use_bidirectional_attention": None,
    "tie_word_embeddings": True,
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        "full_attention": {
            "rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000000.0,
        },
    },
}  # fmt: skip
_NEMOTRON: dict[str, Any] = {
    **{key: _TEXT[key] for key in _TEXT if key not in ("hidden_act", "rms_norm_eps")},
    "model_type": "nemotron_h", "mlp_bias": False, "use_bias": False, "mamba_proj_bias": False,
    "use_conv_bias": True, "mamba_num_heads": 16, "mamba_head_dim": 64, "ssm_state_size": 128,
    "n_groups": 4, "conv_kernel": 4, "chunk_size": 128, "expand": 2, "layer_norm_epsilon": 1e-5,
    "norm_eps": 1e-5, "mlp_hidden_act": "relu2", "mamba_hidden_act": "silu",
    "mamba_ssm_cache_dtype": "float32", "time_step_limit": [0.0, 1e9],
    "time_step_min": 0.001, "time_step_max": 0.1, "time_step_floor": 0.0001,
}  # fmt: skip
_LFM2: dict[str, Any] = {
    **{key: _TEXT[key] for key in _TEXT if key not in ("rms_norm_eps", "head_dim", "hidden_act")},
    "norm_eps": 1e-5, "conv_L_cache": 3, "conv_bias": False,
    "layer_types": ["conv", "conv", "full_attention"] * 2,
}  # fmt: skip
_MINICPM: dict[str, Any] = {
    **_TEXT, "rms_norm_eps": 1e-5, "scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 256,
}  # fmt: skip


def _multimodal(name: str, media: Mapping[str, Any], text: Mapping[str, Any]) -> dict[str, Any]:
    tied = text["tie_word_embeddings"]
    return {"model_type": name, "tie_word_embeddings": tied, **media, "text_config": dict(text)}


_QWEN35 = {
    **_TEXT, **_DELTA, "model_type": "qwen3_5_text", "num_hidden_layers": 8,
    "rope_parameters": _MROPE,
}  # fmt: skip
_NO_WINDOW: dict[str, Any] = {"use_sliding_window": False, "sliding_window": None}

MODELS: Mapping[str, TypeModel] = {
    "llama": TypeModel({**_TEXT, "model_type": "llama"}),
    "qwen3": TypeModel({**_TEXT, **_NO_WINDOW, "model_type": "qwen3"}),
    "qwen3_moe": TypeModel({**_TEXT, **_NO_WINDOW, **_EXPERTS, "model_type": "qwen3_moe"}),
    "qwen3_next": TypeModel({
        **_TEXT, **_EXPERTS, **_DELTA, "model_type": "qwen3_next", "partial_rotary_factor": 0.25,
        "shared_expert_intermediate_size": 384, "rope_scaling": None,
    }),
    "qwen3_5": TypeModel(_multimodal("qwen3_5", _QWEN_MEDIA, _QWEN35)),
    "qwen3_5_moe": TypeModel(_multimodal("qwen3_5_moe", _QWEN_MEDIA, {
        **_QWEN35, **_EXPERTS, "model_type": "qwen3_5_moe_text",
        "shared_expert_intermediate_size": 384,
    }), fused=True),
    "qwen3_vl": TypeModel(_multimodal("qwen3_vl", _QWEN_MEDIA, {
        **_TEXT, "model_type": "qwen3_vl_text",
        "rope_scaling": {
            "rope_type": "default", "mrope_section": [12, 10, 10], "mrope_interleaved": True,
        },
    })),
    "gemma4": TypeModel({
        **_GEMMA, "model_type": "gemma4_text", "hidden_size_per_layer_input": 64,
        "num_kv_shared_layers": 3, "use_double_wide_mlp": True,
    }),
    "gemma4_moe": TypeModel({
        **_GEMMA, "model_type": "gemma4_text", "attention_k_eq_v": True, "enable_moe_block": True,
        "num_experts": 16, "top_k_experts": 4, "moe_intermediate_size": 384,
        "num_hidden_layers": 3, "layer_types": _GEMMA["layer_types"][:3],
    }),
    "gemma4_unified": TypeModel(
        _multimodal("gemma4_unified", {
            "vocab_size": VOCABULARY, "image_token_id": 2040, "audio_token_id": 2041,
            "video_token_id": 2042, "boi_token_id": 2043, "eoi_token_id": 2044,
            "boa_token_id": 2045, "eoa_token_index": 2046,
            "vision_config": {
                "model_type": "gemma4_unified_vision", "patch_size": 16, "pooling_kernel_size": 3,
                "mm_embed_dim": 64, "mm_posemb_size": 20, "output_proj_dims": 64,
            },
            "audio_config": {"model_type": "gemma4_unified_audio", "audio_embed_dim": 640},
        }, {**_GEMMA, "model_type": "gemma4_unified_text", "attention_k_eq_v": True}),
        peer="mlx-vlm",
    ),
    "nemotron_h": TypeModel({
        **_NEMOTRON, "hybrid_override_pattern": "M-M*-M-M*-", "num_hidden_layers": 10,
    }),
    "nemotron_h_moe": TypeModel({
        **_NEMOTRON, "hybrid_override_pattern": "MEM*EM-", "num_hidden_layers": 7,
        "n_routed_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 384,
        "moe_shared_expert_intermediate_size": 384, "n_shared_experts": 1, "n_group": 1,
        "topk_group": 1, "norm_topk_prob": True, "routed_scaling_factor": 2.5,
    }),
    "lfm2": TypeModel({
        **_LFM2, "model_type": "lfm2", "tie_embedding": True, "tie_word_embeddings": True,
        "block_dim": 512, "block_ff_dim": 1536, "block_auto_adjust_ff_dim": False,
        "block_ffn_dim_multiplier": 1.0, "block_multiple_of": 256,
        # What mlx-lm's reader wants besides.
        "num_heads": 8, "block_mlp_init_scale": 1.0, "block_norm_eps": 1e-5,
        "block_out_init_scale": 1.0, "block_use_swiglu": True, "block_use_xavier_init": True,
        "conv_dim": 512, "conv_dim_out": 512, "conv_use_xavier_init": True, "use_pos_enc": True,
    }),
    "lfm2_moe": TypeModel({
        **_LFM2, "model_type": "lfm2_moe", "moe_intermediate_size": 384, "num_experts": 16,
        "num_experts_per_tok": 4, "num_dense_layers": 1, "use_expert_bias": True,
        "norm_topk_prob": True, "routed_scaling_factor": 1.0, "tie_word_embeddings": True,
    }),
    "minicpm": TypeModel({**_MINICPM, "model_type": "minicpm"}, prefix="model."),
    "minicpm3": TypeModel({
        **{key: value for key, value in _MINICPM.items() if key != "head_dim"},
        "model_type": "minicpm3", "num_key_value_heads": 8, "q_lora_rank": 256,
        "kv_lora_rank": 128, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 64,
        # mlx-lm's reader wants a scaling; this one scales by one.
        "rope_scaling": {
            "rope_type": "longrope", "original_max_position_embeddings": 8192,
            "short_factor": [1.0] * 16, "long_factor": [1.0] * 16,
        },
    }, known="its latent norms take an eps of 1e-5 for 1e-6"),
    "minicpmv4_6": TypeModel(
        _multimodal("minicpmv4_6", {
            "vocab_size": VOCABULARY, "image_token_id": 2040, "video_token_id": 2041,
            "insert_layer_id": 0, "image_size": 28,
            "vision_config": {
                "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
                "num_attention_heads": 2, "image_size": 28, "patch_size": 14,
            },
        }, _QWEN35),
        peer="mlx-vlm",
    ),
}  # fmt: skip

HYBRID = ("qwen3_5", "nemotron_h")
"""Those that the long decode is measured of."""
