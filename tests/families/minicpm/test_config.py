"""Configs of MiniCPM3 and MiniCPM-V: what they mean, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest

from phyla.errors import ConfigError, UnsupportedModelError
from phyla_families.minicpm.config import Config
from phyla_families.minicpm.latent import Layer, build_latent
from phyla_families.minicpm.latent_config import LatentConfig
from phyla_families.minicpm.siblings import SIBLINGS
from phyla_families.minicpm.vision_config import VisionConfig

LATENT: dict[str, Any] = {
    "model_type": "minicpm3", "vocab_size": 8, "hidden_size": 32, "intermediate_size": 16,
    "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 4,
    "q_lora_rank": 16, "kv_lora_rank": 8, "qk_nope_head_dim": 12, "qk_rope_head_dim": 4,
    "v_head_dim": None, "scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 8,
}  # fmt: skip
LONGROPE = {"rope_type": "longrope", "original_max_position_embeddings": 8}


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"kv_lora_rank": 0}, "kv_lora_rank"),
        ({"qk_rope_head_dim": None}, "qk_rope_head_dim"),
        ({"qk_rope_head_dim": 3}, "even number"),
        ({"scale_emb": None}, "scale_emb"),
        ({"rope_scaling": {**LONGROPE, "short_factor": [1.0], "long_factor": [1.0, 1.0]}},
         "short_factor"),
    ],
)  # fmt: skip
def test_a_contradiction_is_named(changed: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        LatentConfig.read({**LATENT, **changed})


@pytest.mark.parametrize("key", ["q_lora_rank", "scale_depth", "dim_model_base"])
def test_a_scaling_may_be_null_and_not_absent(key: str) -> None:
    assert getattr(LatentConfig.read({**LATENT, key: None}), key) is None
    with pytest.raises(ConfigError, match=key):
        LatentConfig.read({k: v for k, v in LATENT.items() if k != key})


def scalings(config: LatentConfig) -> tuple[float, float, float]:
    model = build_latent(config)
    first = model.layers[0]
    assert isinstance(first, Layer)
    return model.embedding_scale, first.residual_scale, model.head_scale


def test_null_stands_for_no_scaling() -> None:
    config = LatentConfig.read(LATENT)
    assert scalings(config) == pytest.approx((12, 1.4 / math.sqrt(4), 8 / 32))
    plain = LatentConfig.read({**LATENT, "scale_depth": None, "dim_model_base": None})
    assert scalings(plain) == (12, 1, 1)


def test_values_are_as_wide_as_the_heads_would_be_unless_the_config_says() -> None:
    assert LatentConfig.read(LATENT).v_head_dim == 32 // 4
    assert LatentConfig.read({**LATENT, "v_head_dim": 5}).v_head_dim == 5
    # The base's key, which transformers fills in, is the width of what is rotated.
    assert LatentConfig.read({**LATENT, "head_dim": 99}).head_dim == 4


@pytest.mark.parametrize("kind", list(SIBLINGS))
def test_what_looks_alike_is_refused_by_its_name(kind: str) -> None:
    for read in (Config.read, LatentConfig.read, VisionConfig.read):
        with pytest.raises(UnsupportedModelError) as caught:
            read({**LATENT, "model_type": kind})
        assert SIBLINGS[kind] in str(caught.value)
        assert caught.value.model_type == kind


def test_the_mixture_of_experts_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="MoE"):
        Config.read({**LATENT, "model_type": "minicpm", "num_experts": 8})


def test_the_text_of_minicpm_v_is_read_through_its_outer_config() -> None:
    text = {
        "model_type": "qwen3_5_text", "vocab_size": 8, "hidden_size": 16,
        "intermediate_size": 16, "num_hidden_layers": 4, "num_attention_heads": 2,
        "rope_parameters": {"rope_theta": 1e7}, "linear_num_key_heads": 2,
        "linear_num_value_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
        "linear_conv_kernel_dim": 4,
    }  # fmt: skip
    raw = {"model_type": "minicpmv4_6", "tie_word_embeddings": True, "text_config": text}
    config = VisionConfig.read(raw)
    assert config.tied
    assert (config.head_dim, config.rope.partial_rotary_factor) == (256, 0.25)
    assert config.layer_types.count("full_attention") == 1
    with pytest.raises(ConfigError, match="model_type"):
        VisionConfig.read({**raw, "text_config": {**text, "model_type": "llama"}})
    with pytest.raises(ConfigError, match="model_type"):
        VisionConfig.read({"model_type": "minicpmv4_6", "tie_word_embeddings": True})
