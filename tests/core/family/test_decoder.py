"""What a decoder's config leaves to the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from phyla.checkpoint import Checkpoint, TensorInfo, TokenizerData
from phyla.errors import ConfigError
from phyla.family import DecoderConfig

KEYS: dict[str, Any] = {
    "vocab_size": 8, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1,
    "num_attention_heads": 2, "rope_theta": 10000.0,
}  # fmt: skip


def holding(*names: str) -> Checkpoint:
    return Checkpoint(
        path=Path("tiny"),
        name="tiny",
        format="safetensors",
        config=KEYS,
        generation_config={},
        tensors={name: TensorInfo(name, (8, 16), "F32", 512, "file") for name in names},
        tokenizer=lambda: TokenizerData(json=""),
        chat_templates={},
        quantization=None,
        overrides={},
        load=dict,
    )


@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize("said", [True, False, None])
def test_the_head_is_tied_as_the_config_says_and_else_as_the_file_holds_one(
    said: bool | None, held: bool
) -> None:
    checkpoint = holding("model.embed_tokens.weight", *(["lm_head.weight"] if held else []))
    config = DecoderConfig.read({**KEYS, "tie_word_embeddings": said})
    assert config.settle(checkpoint).tied is (not held if said is None else said)


@pytest.mark.parametrize("name", ["language_model.lm_head.weight", "model.lm_head.weight"])
def test_a_head_is_found_under_any_prefix(name: str) -> None:
    assert not DecoderConfig.read(KEYS).settle(holding(name)).tied


def refused(keys: dict[str, Any]) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        DecoderConfig.read({**KEYS, **keys})
    return caught.value


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("hidden_size", "16", "an integer"),
        ("hidden_size", True, "an integer"),
        ("hidden_size", 16.5, "an integer"),
        ("num_key_value_heads", "2", "an integer"),
        ("max_position_embeddings", False, "an integer"),
        ("rms_norm_eps", "1e-6", "a number"),
        ("rms_norm_eps", True, "a number"),
        ("attention_bias", "false", "true or false"),
        ("tie_word_embeddings", "true", "true or false"),
        ("hidden_act", 3, "text"),
    ],
)
def test_a_value_of_another_json_type_is_refused(key: str, value: object, expected: str) -> None:
    error = refused({key: value})
    assert (error.key, error.expected, error.found) == (key, expected, value)


def test_a_whole_number_with_a_point_is_an_integer() -> None:
    config = DecoderConfig.read({**KEYS, "hidden_size": 16.0, "max_position_embeddings": 512.0})
    assert (config.hidden_size, config.context_length) == (16, 512)
    assert type(config.hidden_size) is int


@pytest.mark.parametrize(
    ("rope", "key"),
    [
        ({"rope_scaling": {"rope_type": "spiral"}}, "rope_scaling.rope_type"),
        ({"rope_scaling": {"type": "spiral"}}, "rope_scaling.type"),
        ({"rope_parameters": {"rope_type": "spiral"}}, "rope_parameters.rope_type"),
        ({"rope_scaling": {"rope_type": "linear"}}, "rope_scaling"),
        ({"rope_parameters": {"rope_type": "linear", "factor": "2"}}, "rope_parameters.factor"),
        (
            {"rope_scaling": {"factor": 2.0}, "rope_parameters": {"rope_type": "spiral"}},
            "rope_parameters.rope_type",
        ),
        (
            {
                "rope_scaling": {
                    "rope_type": "longrope", "original_max_position_embeddings": 4,
                    "short_factor": [1.0, "2"], "long_factor": [1.0],
                }
            },
            "rope_scaling.short_factor",
        ),
        ({"rope_theta": "10000"}, "rope_theta"),
        ({"partial_rotary_factor": 2}, "partial_rotary_factor"),
    ],
)  # fmt: skip
def test_a_rotary_key_is_named_as_it_stands_in_the_file(rope: dict[str, Any], key: str) -> None:
    assert refused(rope).key == key


def test_a_factor_without_a_type_is_told_with_the_object_that_it_stands_in() -> None:
    for section in ("rope_scaling", "rope_parameters"):
        assert repr(section) in str(refused({section: {"factor": 2.0}}))
