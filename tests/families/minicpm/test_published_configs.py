"""Models of the published sizes have the parameters of the real checkpoints; no weight is made.

No config.json of MiniCPM3-4B or MiniCPM-V 4.6 is at hand: the numbers are those of the classes'
defaults, which are the checkpoint's, and of OpenBMB's documentation.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from mlx.utils import tree_flatten

from phyla.checkpoint import Checkpoint
from phyla.checkpoint.checkpoint import TensorInfo
from phyla.engine.weight_rules import place
from phyla.family import Full, Recurrent
from phyla.registry import discover

if TYPE_CHECKING:
    import mlx.core as mx

    from phyla.family import Model

MINICPM3: dict[str, Any] = {
    "model_type": "minicpm3", "vocab_size": 73448, "hidden_size": 2560,
    "intermediate_size": 6400, "num_hidden_layers": 62, "num_attention_heads": 40,
    "num_key_value_heads": 40, "q_lora_rank": 768, "kv_lora_rank": 256, "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 32, "scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 256,
    "rms_norm_eps": 1e-5, "max_position_embeddings": 32768, "tie_word_embeddings": True,
    "rope_scaling": {
        "type": "longrope", "original_max_position_embeddings": 32768,
        "short_factor": [1.0 + index for index in range(16)],
        "long_factor": [1.0 + index for index in range(16)],
    },
}  # fmt: skip
MINICPM_V: dict[str, Any] = {
    "model_type": "minicpmv4_6", "tie_word_embeddings": True,
    "text_config": {
        "model_type": "qwen3_5_text", "vocab_size": 248320, "hidden_size": 1024,
        "intermediate_size": 3584, "num_hidden_layers": 24, "num_attention_heads": 8,
        "num_key_value_heads": 2, "head_dim": 256, "full_attention_interval": 4,
        "linear_num_key_heads": 16, "linear_num_value_heads": 16, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
        "rope_parameters": {
            "rope_theta": 1e7, "rope_type": "default", "partial_rotary_factor": 0.25,
        },
    },
}  # fmt: skip
SEEING: dict[str, Any] = {
    **MINICPM_V, "insert_layer_id": 6,
    "vision_config": {
        "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27,
        "num_attention_heads": 16, "image_size": 980, "patch_size": 14,
    },
}  # fmt: skip
CASES = [
    pytest.param(MINICPM3, 4_073_875_968, (62, 0), id="MiniCPM3-4B"),
    pytest.param(MINICPM_V, 752_393_024, (6, 18), id="MiniCPM-V 4.6's text"),
    pytest.param(SEEING, 1_300_659_440, (6, 18), id="MiniCPM-V 4.6"),
]


def checkpoint(raw: dict[str, Any], shapes: dict[str, tuple[int, ...]]) -> Checkpoint:
    return Checkpoint(
        path=Path("published"), name="published", format="safetensors", config=raw,
        generation_config={},
        tensors={name: TensorInfo(name, shape, "BF16", 0, "") for name, shape in shapes.items()},
        tokenizer=pytest.fail, chat_templates={}, quantization=None, overrides={},
        load=pytest.fail,
    )  # fmt: skip


def shapes(model: Model) -> dict[str, tuple[int, ...]]:
    parameters: dict[str, mx.array] = dict(tree_flatten(model.parameters()))
    return {name: parameter.shape for name, parameter in parameters.items()}


@pytest.mark.parametrize(("raw", "count", "mixers"), CASES)
def test_the_parameters_are_those_of_the_checkpoint(
    raw: dict[str, Any], count: int, mixers: tuple[int, int]
) -> None:
    family = discover().family_for(checkpoint(raw, {}))
    model = family.model(family.config.read(raw))
    assert sum(map(math.prod, shapes(model).values())) == count
    kinds = model.cache_kinds()
    assert tuple(sum(isinstance(k, each) for k in kinds) for each in (Full, Recurrent)) == mixers


def test_minicpm3_stores_a_latent_and_one_rotated_key_for_each_token() -> None:
    family = discover().family_for(checkpoint(MINICPM3, {}))
    kind = family.model(family.config.read(MINICPM3)).cache_kinds()[0]
    assert kind == Full(heads=1, key_dim=256 + 32, value_dim=256)


@pytest.mark.parity
@pytest.mark.parametrize(("raw", "count", "mixers"), CASES)
def test_names_and_shapes_are_those_that_transformers_gives_them(
    raw: dict[str, Any], count: int, mixers: tuple[int, int]
) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

    auto = AutoModelForImageTextToText if "text_config" in raw else AutoModelForCausalLM
    keys = {key: value for key, value in raw.items() if key != "model_type"}
    with torch.device("meta"):
        reference: Any = auto.from_config(AutoConfig.for_model(raw["model_type"], **keys))
    state = reference.state_dict()
    seen = checkpoint(raw, {
        name: tuple(tensor.shape) for name, tensor in state.items() if name != "lm_head.weight"
    })  # fmt: skip
    family = discover().family_for(seen)
    config = family.config.read(raw).settle(seen)
    placed = place(seen.tensors, family.weights(config, seen))
    assert {name: tensor.shape for name, tensor in placed.items()} == shapes(family.model(config))
