"""Every spelling of config.json gives the same; what contradicts itself or is no Gemma 4 is told."""

from __future__ import annotations

from typing import Any

import pytest

from phyla.errors import ConfigError, UnsupportedModelError
from phyla_families.gemma4.config import Config

SLIDING, FULL = "sliding_attention", "full_attention"
ROPE = {
    SLIDING: {"rope_type": "default", "rope_theta": 1e4},
    FULL: {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
}
TEXT: dict[str, Any] = {
    "model_type": "gemma4_text", "vocab_size": 8, "hidden_size": 16, "intermediate_size": 16,
    "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
    "num_global_key_value_heads": 1, "attention_k_eq_v": True, "head_dim": 8,
    "global_head_dim": 16, "layer_types": [SLIDING, FULL, SLIDING, FULL], "sliding_window": 4,
    "rope_parameters": ROPE, "hidden_size_per_layer_input": 0, "tie_word_embeddings": True,
}  # fmt: skip
EXPERTS = {
    "enable_moe_block": True, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 8,
}  # fmt: skip
SHARING = {"num_kv_shared_layers": 2, "use_double_wide_mlp": True}


def read(**changes: object) -> Config:
    changed = {key: value for key, value in changes.items() if value is not ...}
    kept = {key: value for key, value in TEXT.items() if changes.get(key) is not ...}
    return Config.read({**kept, **changed})


def test_full_layers_have_heads_of_their_own() -> None:
    config = read()
    assert (config.head_dim, config.num_key_value_heads) == (8, 2)
    assert (config.global_head_dim, config.num_global_key_value_heads) == (16, 1)


def test_the_global_key_and_value_heads_count_only_where_keys_are_values() -> None:
    assert read(attention_k_eq_v=False).num_global_key_value_heads == 2
    assert read(num_global_key_value_heads=None).num_global_key_value_heads == 2


@pytest.mark.parametrize("own", [{"head_dim": 16, "num_key_value_heads": 1}, {"head_dim": 16}])
def test_what_transformers_saves_layer_by_layer_is_the_same(own: dict[str, int]) -> None:
    config = read(
        global_head_dim=..., num_global_key_value_heads=..., per_layer_config={"1": own, "3": own}
    )
    assert config.global_head_dim == 16
    assert config.num_global_key_value_heads == own.get("num_key_value_heads", 2)


def test_the_keys_of_a_multimodal_config_lie_one_level_down() -> None:
    outer = {
        "model_type": "gemma4", "image_token_id": 5, "audio_token_id": 6, "video_token_id": 7,
        "tie_word_embeddings": True, "audio_config": None, "vision_config": {"hidden_size": 99},
    }  # fmt: skip
    config = Config.read({**outer, "text_config": TEXT})
    assert config.hidden_size == 16
    assert config.model_type == "gemma4"
    assert config.soft_tokens == (5, 7, 6)
    assert (config.model_extra or {})["vision_config"] == {"hidden_size": 99}
    assert read().soft_tokens == ()


@pytest.mark.parametrize("kind", [SLIDING, FULL])
def test_a_rotary_key_is_named_with_its_type_of_layer(kind: str) -> None:
    text = {**TEXT, "rope_parameters": {**ROPE, kind: {**ROPE[kind], "rope_theta": "1e4"}}}
    for whole, outer in ((text, ""), ({"text_config": text}, "text_config.")):
        with pytest.raises(ConfigError) as caught:
            Config.read(whole)
        assert caught.value.key == f"{outer}rope_parameters.{kind}.rope_theta"


def test_what_a_config_leaves_out_is_as_in_transformers() -> None:
    absent = ("num_key_value_heads", "head_dim", "global_head_dim", "sliding_window")
    config = read(
        **dict.fromkeys(absent, ...), hidden_size_per_layer_input=..., rope_parameters=None
    )
    assert (config.num_key_value_heads, config.head_dim, config.global_head_dim) == (4, 256, 512)
    assert (config.sliding_window, config.hidden_size_per_layer_input) == (512, 256)
    assert config.use_bidirectional_attention is None
    assert config.global_rope.type == "proportional"
    assert config.rope.theta == 1e4


def test_the_encoder_free_model_has_defaults_of_its_own() -> None:
    config = read(
        model_type="gemma4_unified_text", sliding_window=..., hidden_size_per_layer_input=256
    )
    assert (config.sliding_window, config.hidden_size_per_layer_input) == (1024, 0)
    assert config.use_bidirectional_attention == "vision"
    switched_off = read(model_type="gemma4_unified_text", use_bidirectional_attention=None)
    assert switched_off.use_bidirectional_attention is None


def test_the_last_layer_is_full_whatever_the_file_says() -> None:
    config = read(layer_types=[SLIDING, FULL, SLIDING, SLIDING])
    assert [config.slides(layer) for layer in range(4)] == [True, False, True, False]


def test_a_layer_without_keys_reads_those_of_the_last_layer_of_its_type() -> None:
    config = read(**SHARING, num_hidden_layers=6, layer_types=[SLIDING, SLIDING, FULL] * 2)
    assert config.first_shared_layer == 4
    assert [config.owner(layer) for layer in range(6)] == [None] * 4 + [3, 2]
    assert [config.mlp_width(layer) for layer in (3, 4)] == [16, 32]


def test_the_tokens_of_an_image_see_one_another_in_sliding_layers_only() -> None:
    config = read(use_bidirectional_attention="vision")
    assert [config.sees_blocks(layer) for layer in range(4)] == [True, False, True, False]
    assert not any(read().sees_blocks(layer) for layer in range(4))


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"layer_types": ...}, "layer_types"),
        ({"layer_types": [FULL]}, "layer_types"),
        ({"layer_types": [FULL, FULL, "conv", FULL]}, "layer_types"),
        ({"hidden_activation": "silu"}, "hidden_activation"),
        ({**EXPERTS, "num_experts": None}, "num_experts"),
        ({**EXPERTS, "top_k_experts": 5}, "top_k_experts"),
        ({"num_kv_shared_layers": 3}, "full_attention"),
        ({"num_kv_shared_layers": 4}, "num_kv_shared_layers"),
        ({"num_global_key_value_heads": 3}, "num_attention_heads"),
        ({"rope_parameters": {SLIDING: ROPE[SLIDING]}}, "full_attention"),
        ({"rope_parameters": 1e4}, "rope_parameters"),
        ({"global_head_dim": 15}, "global_head_dim"),
        ({"per_layer_config": {"1": {"head_dim": 16}, "3": {"head_dim": 32}}}, "per_layer_config"),
        ({"per_layer_config": {"1": {"head_dim": [16]}}}, "per_layer_config"),
        ({"per_layer_config": {"0": {"head_dim": 16}}}, "per_layer_config"),
        ({"per_layer_config": {"1": {"sliding_window": 16}}}, "per_layer_config"),
        ({"per_layer_config": {"first": {"head_dim": 16}}}, "per_layer_config"),
        ({"final_logit_softcapping": 0}, "final_logit_softcapping"),
        ({"use_bidirectional_attention": "audio"}, "use_bidirectional_attention"),
    ],
)
def test_a_contradiction_is_named(changes: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        read(**changes)


def test_a_text_config_that_is_none_is_named() -> None:
    with pytest.raises(ConfigError, match="text_config"):
        Config.read({"model_type": "gemma4", "text_config": [TEXT]})


@pytest.mark.parametrize(
    ("model_type", "word"),
    [
        ("gemma4_assistant", "drafter"),
        ("gemma4_unified_assistant", "drafter"),
        ("diffusion_gemma", "diffusion"),
        ("embedding_gemma2", "encoder"),
        ("gemma3n", "Gemma 3n"),
        ("gemma3n_text", "Gemma 3n"),
        ("gemma4_vision", "vision tower"),
    ],
)
def test_a_sibling_is_refused_by_what_it_is(model_type: str, word: str) -> None:
    with pytest.raises(UnsupportedModelError, match=word) as caught:
        Config.read({"model_type": model_type, "text_config": TEXT})
    assert caught.value.model_type == model_type


def test_an_encoder_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="encoder"):
        read(use_bidirectional_attention="all")
