"""Every published config builds, with the parameters of the real checkpoint; no weight is made.

E2B and E4B are written here; the others are read from their config.json, where that is at hand.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pytest
from mlx.utils import tree_flatten

from phyla.checkpoint.checkpoint import TensorInfo
from phyla.engine.weight_rules import place
from phyla.family import Full, SharedWith, Sliding
from phyla_families.gemma4.config import Config
from phyla_families.gemma4.model import build
from phyla_families.gemma4.weights import rules

if TYPE_CHECKING:
    import mlx.core as mx

    from phyla.checkpoint import Checkpoint
    from phyla_families.gemma4.model import Gemma4

SHARED = Path(__file__).parents[4] / "shared" / "configs"
FILES = {
    "12B": "gemma4-12B-unified.config.json",
    "26B-A4B": "gemma4-26B-A4B.config.json",
    "31B": "gemma4-31B-it-nvfp4.config.json",
}

SLIDING, FULL = "sliding_attention", "full_attention"
E2B: dict[str, Any] = {
    "model_type": "gemma4_text", "vocab_size": 262144, "vocab_size_per_layer_input": 262144,
    "hidden_size": 1536, "intermediate_size": 6144, "num_hidden_layers": 35,
    "num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 256, "global_head_dim": 512,
    "sliding_window": 512, "num_kv_shared_layers": 20, "hidden_size_per_layer_input": 256,
    "attention_k_eq_v": False, "use_double_wide_mlp": True, "final_logit_softcapping": 30.0,
    "layer_types": ([SLIDING] * 4 + [FULL]) * 7,
}  # fmt: skip
E4B: dict[str, Any] = {
    **E2B, "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 42,
    "num_key_value_heads": 2, "num_kv_shared_layers": 18, "use_double_wide_mlp": False,
    "layer_types": ([SLIDING] * 5 + [FULL]) * 7,
}  # fmt: skip
# What the larger ones say that the small ones do not, with fewer layers.
SIX_OF_26B: dict[str, Any] = {
    **E2B, "hidden_size": 2816, "intermediate_size": 2112, "num_hidden_layers": 6,
    "num_attention_heads": 16, "num_key_value_heads": 8, "num_global_key_value_heads": 2,
    "sliding_window": 1024, "num_kv_shared_layers": 0, "hidden_size_per_layer_input": 0,
    "attention_k_eq_v": True, "use_double_wide_mlp": False, "enable_moe_block": True,
    "num_experts": 128, "top_k_experts": 8, "moe_intermediate_size": 704,
    "layer_types": [SLIDING] * 5 + [FULL], "use_bidirectional_attention": "vision",
}  # fmt: skip


def config_of(name: str) -> dict[str, Any] | None:
    """The config.json of a published model; None where the file is not at hand."""
    written = {"E2B": E2B, "E4B": E4B, "six layers of 26B-A4B": SIX_OF_26B}
    if name in written:
        return written[name]
    path = SHARED / FILES[name]
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


# The rules look at the config alone.
_UNREAD = cast("Checkpoint", None)


class Known(NamedTuple):
    """What a text part amounts to: as transformers counts it, each expert's gate and up one by one.

    `own` counts the layers with keys and values of their own, sliding and full.
    """

    tensors: int
    parameters: int
    own: tuple[int, int]
    shapes: dict[str, tuple[int, ...]]


PUBLISHED = {
    "E2B": Known(540, 4_628_569_379, (12, 3), {
        "embed_tokens_per_layer.weight": (262144, 8960),
        "per_layer_model_projection.weight": (8960, 1536),
        "layers.4.self_attn.k_proj.weight": (512, 1536),
        "layers.14.mlp.gate_proj.weight": (6144, 1536),
        "layers.15.mlp.gate_proj.weight": (12288, 1536),
        "layers.34.self_attn.q_proj.weight": (4096, 1536),
        "layers.34.per_layer_input_gate.weight": (256, 1536),
    }),
    "E4B": Known(665, 7_463_013_418, (20, 4), {
        "layers.5.self_attn.k_proj.weight": (1024, 2560),
        "layers.41.mlp.down_proj.weight": (2560, 10240),
        "layers.41.layer_scalar": (1,),
    }),
    "12B": Known(666, 11_907_350_320, (40, 8), {
        "layers.0.self_attn.k_proj.weight": (2048, 3840),
        "layers.5.self_attn.k_proj.weight": (512, 3840),
        "layers.5.self_attn.q_norm.weight": (512,),
    }),
    "26B-A4B": Known(687, 25_233_141_790, (25, 5), {
        "layers.0.experts.gate_proj.weight": (128, 704, 2816),
        "layers.0.experts.down_proj.weight": (128, 2816, 704),
        "layers.0.mlp.up_proj.weight": (2112, 2816),
        "layers.0.router.proj.weight": (128, 2816),
        "layers.0.router.scale": (2816,),
        "layers.0.router.per_expert_scale": (128,),
        "layers.5.self_attn.k_proj.weight": (1024, 2816),
    }),
    "six layers of 26B-A4B": Known(139, 5_637_188_614, (5, 1), {
        "layers.5.pre_feedforward_layernorm_2.weight": (2816,),
    }),
    "31B": Known(832, 30_697_345_340, (50, 10), {
        "layers.59.self_attn.q_proj.weight": (16384, 5376),
        "layers.59.self_attn.k_proj.weight": (2048, 5376),
        "layers.0.self_attn.v_proj.weight": (4096, 5376),
    }),
}  # fmt: skip


@pytest.fixture(params=list(PUBLISHED))
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def raw(name: str) -> dict[str, Any]:
    config = config_of(name)
    if config is None:
        pytest.skip("the published config.json is not at hand")
    return config


@pytest.fixture
def model(raw: dict[str, Any]) -> Gemma4:
    return build(Config.read(raw))


def shapes(model: Gemma4) -> dict[str, tuple[int, ...]]:
    parameters: dict[str, mx.array] = dict(tree_flatten(model.parameters()))
    return {name: parameter.shape for name, parameter in parameters.items()}


def text_shapes(model: Gemma4) -> dict[str, tuple[int, ...]]:
    media = ("vision_", "audio_", "embed_vision.", "embed_audio.")
    return {name: shape for name, shape in shapes(model).items() if not name.startswith(media)}


def test_the_parameters_are_those_of_the_checkpoint(model: Gemma4, name: str) -> None:
    known, found = PUBLISHED[name], text_shapes(model)
    assert known.shapes.items() <= found.items()
    assert len(found) == known.tensors
    assert sum(map(math.prod, found.values())) == known.parameters


def test_each_layer_is_given_the_cache_of_its_type(model: Gemma4, name: str) -> None:
    kinds = model.cache_kinds()
    own = tuple(sum(isinstance(kind, each) for kind in kinds) for each in (Sliding, Full))
    assert own == PUBLISHED[name].own
    sharing = [kind for kind in kinds if isinstance(kind, SharedWith)]
    assert kinds[len(kinds) - len(sharing) :] == sharing
    assert sum(own) + len(sharing) == len(kinds)


def test_the_small_models_share_the_keys_of_two_layers() -> None:
    for small, owners in (("E2B", {13, 14}), ("E4B", {22, 23})):
        config = config_of(small)
        assert config is not None
        kinds = build(Config.read(config)).cache_kinds()
        assert {kind.layer for kind in kinds if isinstance(kind, SharedWith)} == owners


@pytest.mark.parity
def test_names_and_shapes_are_those_that_transformers_gives_them(
    model: Gemma4, raw: dict[str, Any]
) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    keys = {k: v for k, v in raw.items() if k not in ("model_type", "quantization_config")}
    with torch.device("meta"):
        config = AutoConfig.for_model(raw["model_type"], **keys)
        reference: Any = AutoModelForCausalLM.from_config(config)
    tensors = {
        name: TensorInfo(name, tuple(tensor.shape), "BF16", 0, "model.safetensors")
        for name, tensor in reference.state_dict().items()
    }
    placed = place(tensors, rules(Config.read(raw), _UNREAD))
    assert {name: tensor.shape for name, tensor in placed.items()} == shapes(model)
