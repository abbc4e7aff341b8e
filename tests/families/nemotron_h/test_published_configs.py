"""Models of the published sizes have the parameters that the published files have.

Nothing is allocated: the parameters are never evaluated.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from mlx.utils import tree_flatten

from phyla.checkpoint import Checkpoint
from phyla.checkpoint.checkpoint import TensorInfo
from phyla.engine.weight_rules import place
from phyla_families.nemotron_h.config import Config
from phyla_families.nemotron_h.model import NemotronH
from phyla_families.nemotron_h.weights import rules

Shapes = dict[str, tuple[int, ...]]

CONFIGS = Path(__file__).resolve().parents[4] / "shared" / "configs"

NANO_9B_V2: dict[str, Any] = {
    "model_type": "nemotron_h", "architectures": ["NemotronHForCausalLM"], "vocab_size": 131072,
    "hidden_size": 4480, "intermediate_size": 15680, "num_attention_heads": 40,
    "num_key_value_heads": 8, "head_dim": 128, "mamba_num_heads": 128, "mamba_head_dim": 80,
    "ssm_state_size": 128, "n_groups": 8, "conv_kernel": 4, "use_conv_bias": True,
    "hybrid_override_pattern": "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-",
    "num_hidden_layers": 56, "layer_norm_epsilon": 1e-5, "tie_word_embeddings": False,
}  # fmt: skip

# As Nemotron 3 Super, with fewer blocks and experts.
LATENT = {
    **NANO_9B_V2, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 2,
    "mamba_head_dim": 64, "hybrid_override_pattern": "MEM*E", "num_hidden_layers": 5,
    "n_routed_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 2688,
    "moe_latent_size": 1024, "moe_shared_expert_intermediate_size": 5376,
    "routed_scaling_factor": 5.0, "num_nextn_predict_layers": 1,
}  # fmt: skip


def in_the_file(config: dict[str, Any]) -> Shapes:
    """Names and shapes as Hugging Face files have them, without `mtp`."""
    dim, vocabulary = config["hidden_size"], config["vocab_size"]
    shapes: Shapes = {
        "backbone.embeddings.weight": (vocabulary, dim),
        "backbone.norm_f.weight": (dim,),
        "lm_head.weight": (vocabulary, dim),
    }
    parts = {"M": mamba, "*": attention, "-": mlp, "E": experts}
    for index, letter in enumerate(config["hybrid_override_pattern"]):
        shapes[f"backbone.layers.{index}.norm.weight"] = (dim,)
        for name, shape in parts[letter](config, dim).items():
            shapes[f"backbone.layers.{index}.mixer.{name}"] = shape
    return shapes


def mamba(config: dict[str, Any], dim: int) -> Shapes:
    heads, kernel = config["mamba_num_heads"], config["conv_kernel"]
    inner = heads * config["mamba_head_dim"]
    channels = inner + 2 * config["n_groups"] * config["ssm_state_size"]
    return {
        "in_proj.weight": (inner + channels + heads, dim),
        "conv1d.weight": (channels, 1, kernel),
        "conv1d.bias": (channels,),
        "A_log": (heads,),
        "D": (heads,),
        "dt_bias": (heads,),
        "norm.weight": (inner,),
        "out_proj.weight": (dim, inner),
    }


def attention(config: dict[str, Any], dim: int) -> Shapes:
    width = config["num_attention_heads"] * config["head_dim"]
    kv_width = config["num_key_value_heads"] * config["head_dim"]
    return {
        "q_proj.weight": (width, dim),
        "k_proj.weight": (kv_width, dim),
        "v_proj.weight": (kv_width, dim),
        "o_proj.weight": (dim, width),
    }


def mlp(config: dict[str, Any], dim: int) -> Shapes:
    width = config["intermediate_size"]
    return {"up_proj.weight": (width, dim), "down_proj.weight": (dim, width)}


def experts(config: dict[str, Any], dim: int) -> Shapes:
    width, shared = config["moe_intermediate_size"], config["moe_shared_expert_intermediate_size"]
    count, latent = config["n_routed_experts"], config.get("moe_latent_size")
    inner = latent or dim
    shapes: Shapes = {
        "gate.weight": (count, dim),
        "gate.e_score_correction_bias": (count,),
        "shared_experts.up_proj.weight": (shared, dim),
        "shared_experts.down_proj.weight": (dim, shared),
    }
    if latent:
        shapes["fc1_latent_proj.weight"] = (latent, dim)
        shapes["fc2_latent_proj.weight"] = (dim, latent)
    for expert in range(count):
        shapes[f"experts.{expert}.up_proj.weight"] = (width, inner)
        shapes[f"experts.{expert}.down_proj.weight"] = (inner, width)
    return shapes


def check(config: dict[str, Any], count: int, tmp_path: Path) -> Config:
    shapes = in_the_file(config)
    assert sum(map(math.prod, shapes.values())) == count
    seen = Checkpoint(
        path=tmp_path, name="published", format="safetensors", config=config,
        generation_config={},
        tensors={name: TensorInfo(name, shape, "BF16", 0, "") for name, shape in shapes.items()},
        tokenizer=pytest.fail, chat_templates={}, quantization=None, overrides={},
        load=pytest.fail,
    )  # fmt: skip
    settled = Config.read(config).settle(seen)
    placed = place(seen.tensors, rules(settled, seen))
    parameters = dict(tree_flatten(NemotronH(settled).parameters()))
    assert {name: tensor.shape for name, tensor in placed.items()} == {
        name: parameter.shape for name, parameter in parameters.items()
    }
    return settled


def test_nemotron_3_nano_30b_has_the_parameters_of_its_file(tmp_path: Path) -> None:
    path = CONFIGS / "nemotron-3-nano-30b-a3b-bf16.config.json"
    if not path.exists():
        pytest.skip("needs the published configs beside the repository")
    config = check(json.loads(path.read_text(encoding="utf-8")), 31_577_940_288, tmp_path)
    kinds = [block.kind for block in config.blocks]
    assert [kinds.count(kind) for kind in ("mamba", "moe", "attention")] == [23, 23, 6]


@pytest.mark.parametrize(
    ("config", "count"),
    [
        pytest.param(NANO_9B_V2, 8_888_227_328, id="Nano-9B-v2"),
        pytest.param(LATENT, 1_609_839_392, id="latent experts"),
    ],
)
def test_every_parameter_is_in_the_file_with_its_shape(
    config: dict[str, Any], count: int, tmp_path: Path
) -> None:
    check(config, count, tmp_path)
