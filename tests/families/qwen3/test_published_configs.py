"""Every published config builds, with the parameters of the real checkpoint; no weight is made."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

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

SHARED = Path(__file__).parents[4] / "shared" / "configs"

ROPE = {"rope_theta": 10000000, "partial_rotary_factor": 0.25, "rope_type": "default",
        "mrope_section": [11, 11, 10], "mrope_interleaved": True}  # fmt: skip
# What Qwen3.5-27B's text part says, with eight of its layers.
EIGHT_OF_27B: dict[str, Any] = {
    "model_type": "qwen3_5", "tie_word_embeddings": False,
    "text_config": {
        "model_type": "qwen3_5_text", "vocab_size": 248320, "hidden_size": 5120,
        "intermediate_size": 17408, "num_hidden_layers": 8, "num_attention_heads": 24,
        "num_key_value_heads": 4, "head_dim": 256, "full_attention_interval": 4,
        "linear_num_key_heads": 16, "linear_num_value_heads": 48, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "rope_parameters": ROPE,
    },
}  # fmt: skip
# And what Qwen3-VL-30B-A3B's says, with four.
FOUR_OF_VL_30B: dict[str, Any] = {
    "model_type": "qwen3_vl_moe", "tie_word_embeddings": False,
    "text_config": {
        "model_type": "qwen3_vl_moe_text", "vocab_size": 151936, "hidden_size": 2048,
        "intermediate_size": 6144, "num_hidden_layers": 4, "num_attention_heads": 32,
        "num_key_value_heads": 4, "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8,
        "moe_intermediate_size": 768, "decoder_sparse_step": 1, "mlp_only_layers": [],
        "rope_theta": 5000000,
        "rope_scaling": {"rope_type": "default", "mrope_section": [24, 20, 20]},
    },
}  # fmt: skip


class Known(NamedTuple):
    """What a checkpoint amounts to, with its tower where it has one.

    `mixers` counts the layers that attend and those that are delta nets.
    """

    source: str | dict[str, Any]
    parameters: int
    mixers: tuple[int, int]
    shapes: dict[str, tuple[int, ...]]


PUBLISHED = {
    "0.6B": Known("qwen3-0.6b.config.json", 596_049_920, (28, 0), {
        "layers.27.self_attn.q_proj.weight": (2048, 1024),
        "layers.27.self_attn.q_norm.weight": (128,),
    }),
    "235B-A22B": Known("qwen3-235b-a22b-instruct-2507.config.json", 235_093_634_560, (94, 0), {
        "layers.93.mlp.switch_mlp.gate_proj.weight": (128, 1536, 4096),
    }),
    "Next-80B-A3B": Known("qwen3-next-80b-a3b-instruct.config.json", 79_674_391_296, (12, 36), {
        "layers.0.linear_attn.in_proj_qkvz.weight": (12288, 2048),
        "layers.0.linear_attn.in_proj_ba.weight": (64, 2048),
        "layers.0.linear_attn.conv1d.weight": (8192, 4, 1),
        "layers.3.self_attn.q_proj.weight": (8192, 2048),
        "layers.0.mlp.switch_mlp.down_proj.weight": (512, 2048, 512),
        "layers.0.mlp.shared_expert_gate.weight": (1, 2048),
    }),
    "3.5-2B": Known("qwen3.5-2b-mlx-text-conversion.config.json", 1_881_825_088, (6, 18), {
        "layers.0.linear_attn.in_proj_qkv.weight": (6144, 2048),
        "layers.0.linear_attn.A_log": (16,),
        "layers.23.self_attn.o_proj.weight": (2048, 2048),
    }),
    "3.5-35B-A3B": Known("qwen3.5-35b-a3b.config.json", 35_107_181_936, (10, 30), {
        "layers.0.linear_attn.in_proj_z.weight": (4096, 2048),
        "layers.39.mlp.gate.weight": (256, 2048),
        "visual.merger.linear_fc2.weight": (2048, 4608),
        "layers.39.mlp.shared_expert.up_proj.weight": (512, 2048),
    }),
    "VL-8B": Known("qwen3-vl-8b-instruct.config.json", 8_767_123_696, (36, 0), {
        "layers.35.self_attn.k_proj.weight": (1024, 4096),
        "lm_head.weight": (151936, 4096),
        "visual.patch_embed.proj.weight": (1152, 2, 16, 16, 3),
        "visual.deepstack_merger_list.2.norm.weight": (4608,),
    }),
    "eight layers of 3.5-27B": Known(EIGHT_OF_27B, 5_586_951_488, (2, 6), {
        "layers.0.linear_attn.in_proj_qkv.weight": (10240, 5120),
        "layers.0.linear_attn.in_proj_b.weight": (48, 5120),
        "layers.7.self_attn.q_proj.weight": (12288, 5120),
    }),
    "four layers of VL-30B-A3B": Known(FOUR_OF_VL_30B, 3_114_814_464, (4, 0), {
        "layers.3.mlp.switch_mlp.up_proj.weight": (128, 768, 2048),
    }),
}  # fmt: skip


@pytest.fixture(params=list(PUBLISHED))
def known(request: pytest.FixtureRequest) -> Known:
    return PUBLISHED[request.param]


@pytest.fixture
def raw(known: Known) -> dict[str, Any]:
    if isinstance(known.source, dict):
        return known.source
    path = SHARED / known.source
    if not path.exists():
        pytest.skip("the published config.json is not at hand")
    return json.loads(path.read_text(encoding="utf-8"))


def checkpoint(raw: dict[str, Any], shapes: dict[str, tuple[int, ...]]) -> Checkpoint:
    return Checkpoint(
        path=Path("published"), name="published", format="safetensors", config=raw,
        generation_config={},
        tensors={name: TensorInfo(name, shape, "BF16", 0, "") for name, shape in shapes.items()},
        tokenizer=pytest.fail, chat_templates={}, quantization=None, overrides={},
        load=pytest.fail,
    )  # fmt: skip


def build(raw: dict[str, Any]) -> Model:
    family = discover().family_for(checkpoint(raw, {}))
    assert family.name == "qwen3"
    return family.model(family.config.read(raw))


def shapes(model: Model) -> dict[str, tuple[int, ...]]:
    parameters: dict[str, mx.array] = dict(tree_flatten(model.parameters()))
    return {name: parameter.shape for name, parameter in parameters.items()}


def test_the_parameters_are_those_of_the_checkpoint(known: Known, raw: dict[str, Any]) -> None:
    found = shapes(build(raw))
    assert known.shapes.items() <= found.items()
    assert sum(map(math.prod, found.values())) == known.parameters


def test_each_layer_is_given_the_cache_of_its_type(known: Known, raw: dict[str, Any]) -> None:
    kinds = build(raw).cache_kinds()
    assert tuple(sum(isinstance(k, each) for k in kinds) for each in (Full, Recurrent)) == (
        known.mixers
    )
    for kind in kinds:
        if isinstance(kind, Recurrent):
            assert kind.dtypes == (None, "float32")


@pytest.mark.parity
def test_names_and_shapes_are_those_that_transformers_gives_them(raw: dict[str, Any]) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

    multimodal = "vision_config" in raw or raw["model_type"].startswith("qwen3_vl")
    auto = AutoModelForImageTextToText if multimodal else AutoModelForCausalLM
    keys = {key: value for key, value in raw.items() if key != "model_type"}
    with torch.device("meta"):
        reference: Any = auto.from_config(AutoConfig.for_model(raw["model_type"], **keys))
    tied = raw.get("tie_word_embeddings", False)
    seen = checkpoint(raw, {
        name: tuple(tensor.shape)
        for name, tensor in reference.state_dict().items()
        if not (tied and name == "lm_head.weight")
    })  # fmt: skip
    family = discover().family_for(seen)
    config = family.config.read(raw).settle(seen)
    placed = place(seen.tensors, family.weights(config, seen))
    assert {name: tensor.shape for name, tensor in placed.items()} == shapes(family.model(config))
