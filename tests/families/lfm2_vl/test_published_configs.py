"""Models of the published sizes have the parameters that the published files have.

Nothing is allocated: the parameters are never evaluated.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
from mlx.utils import tree_flatten

from phyla.checkpoint import Checkpoint
from phyla.checkpoint.checkpoint import TensorInfo
from phyla.engine.weight_rules import place
from phyla_families.lfm2_vl.config import Config
from phyla_families.lfm2_vl.model import build
from phyla_families.lfm2_vl.weights import rules

Shapes = dict[str, tuple[int, ...]]

DENSE: dict[str, Any] = {
    "model_type": "lfm2", "architectures": ["Lfm2ForCausalLM"], "vocab_size": 65536,
    "hidden_size": 2048, "block_dim": 2048, "intermediate_size": 12288, "block_ff_dim": 12288,
    "num_hidden_layers": 16, "num_attention_heads": 32, "num_heads": 32,
    "num_key_value_heads": 8, "full_attn_idxs": [2, 5, 8, 10, 12, 14], "conv_L_cache": 3,
    "conv_bias": False, "block_auto_adjust_ff_dim": True, "block_ffn_dim_multiplier": 1.0,
    "block_multiple_of": 256, "norm_eps": 1e-5, "block_norm_eps": 1e-5, "rope_theta": 1000000.0,
    "max_position_embeddings": 128000, "tie_embedding": True, "eos_token_id": 7,
}  # fmt: skip
SMALL = {
    **DENSE, "hidden_size": 1024, "num_attention_heads": 16, "intermediate_size": 6656,
    "block_ff_dim": 6656,
}  # fmt: skip
EXPERTS = {
    "model_type": "lfm2_moe", "architectures": ["Lfm2MoeForCausalLM"], "vocab_size": 65536,
    "hidden_size": 2048, "intermediate_size": 7168, "moe_intermediate_size": 1792,
    "num_hidden_layers": 24, "num_attention_heads": 32, "num_key_value_heads": 8,
    "num_experts": 32, "num_experts_per_tok": 4, "num_dense_layers": 2, "use_expert_bias": True,
    "norm_topk_prob": True, "routed_scaling_factor": 1.0, "conv_L_cache": 3, "conv_bias": False,
    "layer_types": [
        "full_attention" if index in (2, 6, 10, 14, 18, 21) else "conv" for index in range(24)
    ],
    "norm_eps": 1e-5, "rope_parameters": {"rope_theta": 5000000.0, "rope_type": "default"},
    "tie_word_embeddings": True,
}  # fmt: skip


def in_the_file(config: dict[str, Any], *, width: int) -> Shapes:
    """Names and shapes as Hugging Face files have them; `width` is that of a dense MLP."""
    dim, layers = config["hidden_size"], config["num_hidden_layers"]
    head = dim // config["num_attention_heads"]
    kv = head * config["num_key_value_heads"]
    attention = config.get("full_attn_idxs") or [
        index for index, kind in enumerate(config["layer_types"]) if kind == "full_attention"
    ]
    shapes: Shapes = {
        "model.embed_tokens.weight": (config["vocab_size"], dim),
        "model.embedding_norm.weight": (dim,),
    }
    for index in range(layers):
        here = f"model.layers.{index}."
        shapes |= {f"{here}{norm}_norm.weight": (dim,) for norm in ("operator", "ffn")}
        if index in attention:
            shapes |= {
                f"{here}self_attn.q_proj.weight": (dim, dim),
                f"{here}self_attn.k_proj.weight": (kv, dim),
                f"{here}self_attn.v_proj.weight": (kv, dim),
                f"{here}self_attn.out_proj.weight": (dim, dim),
                f"{here}self_attn.q_layernorm.weight": (head,),
                f"{here}self_attn.k_layernorm.weight": (head,),
            }
        else:
            shapes |= {
                f"{here}conv.in_proj.weight": (3 * dim, dim),
                f"{here}conv.conv.weight": (dim, 1, config["conv_L_cache"]),
                f"{here}conv.out_proj.weight": (dim, dim),
            }
        if index < config.get("num_dense_layers", layers):
            shapes |= mlp(f"{here}feed_forward.", dim, width)
            continue
        experts = config["num_experts"]
        shapes[f"{here}feed_forward.gate.weight"] = (experts, dim)
        shapes[f"{here}feed_forward.expert_bias"] = (experts,)
        for expert in range(experts):
            name = f"{here}feed_forward.experts.{expert}."
            shapes |= mlp(name, dim, config["moe_intermediate_size"])
    return shapes


def mlp(name: str, dim: int, width: int) -> Shapes:
    return {
        f"{name}w1.weight": (width, dim),
        f"{name}w3.weight": (width, dim),
        f"{name}w2.weight": (dim, width),
    }


def checkpoint(config: dict[str, Any], shapes: Shapes, tmp_path: Any) -> Checkpoint:
    return Checkpoint(
        path=tmp_path, name="published", format="safetensors", config=config,
        generation_config={},
        tensors={name: TensorInfo(name, shape, "BF16", 0, "") for name, shape in shapes.items()},
        tokenizer=pytest.fail, chat_templates={}, quantization=None, overrides={},
        load=pytest.fail,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("config", "width", "count"),
    [
        pytest.param(DENSE, 8192, 1_170_340_608, id="LFM2-1.2B"),
        pytest.param(SMALL, 4608, 354_483_968, id="LFM2-350M"),
        pytest.param(EXPERTS, 7168, 8_339_930_560, id="LFM2-8B-A1B"),
        pytest.param(
            {"model_type": "lfm2_vl", "text_config": SMALL}, 4608, 354_483_968, id="LFM2-VL-450M"
        ),
    ],
)
def test_every_parameter_is_in_the_file_with_its_shape(
    config: dict[str, Any], width: int, count: int, tmp_path: Any
) -> None:
    shapes = in_the_file(config.get("text_config", config), width=width)
    assert sum(map(math.prod, shapes.values())) == count
    seen = checkpoint(config, shapes, tmp_path)
    settled = Config.read(config).settle(seen)
    placed = place(seen.tensors, rules(settled, seen))
    parameters = dict(tree_flatten(build(settled).parameters()))
    assert {name: tensor.shape for name, tensor in placed.items()} == {
        name: parameter.shape for name, parameter in parameters.items()
    }
    assert settled.intermediate_size == width == Config.read(config).intermediate_size
