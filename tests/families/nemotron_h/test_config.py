"""config.json of Nemotron-H: its spellings, what may be absent, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from phyla.errors import ConfigError, UnsupportedModelError
from phyla_families.nemotron_h.config import Config
from phyla_families.nemotron_h.siblings import SIBLINGS

BASE: dict[str, Any] = {
    "model_type": "nemotron_h", "vocab_size": 8, "hidden_size": 16, "intermediate_size": 24,
    "hybrid_override_pattern": "M-*", "num_attention_heads": 4, "num_key_value_heads": 2,
    "mamba_num_heads": 4, "mamba_head_dim": 8, "ssm_state_size": 6, "n_groups": 2,
    "expand": 2, "rope_theta": 10000,
}  # fmt: skip
EXPERTS: dict[str, Any] = {
    **BASE, "hybrid_override_pattern": "ME", "n_routed_experts": 8, "num_experts_per_tok": 3,
    "moe_intermediate_size": 8, "moe_shared_expert_intermediate_size": 12,
}  # fmt: skip


def without(config: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in keys}


def kinds(config: dict[str, Any]) -> list[str]:
    return [block.kind for block in Config.read(config).blocks]


@pytest.mark.parametrize(
    "keys",
    [
        {"hybrid_override_pattern": "M-*"},
        {"hybrid_override_pattern": "M-*", "num_hidden_layers": 3},
        {"layers_block_type": ["mamba", "mlp", "attention"]},
        {"layers_block_type": ["mamba", "mlp", "attention"], "num_hidden_layers": 7},
        {"layers_block_type": ["linear_attention", "mlp", "full_attention"]},
        {"layer_types": ["linear_attention", "mlp", "full_attention"], "num_hidden_layers": None},
        {"layers_block_type": ["mamba", "mlp", "attention"], "hybrid_override_pattern": "***"},
        {
            "block_configs": [{"block_type": each} for each in ("mamba", "mlp", "attention")],
            "hybrid_override_pattern": "***",
        },
    ],
)
def test_every_spelling_of_the_blocks_is_read(keys: dict[str, Any]) -> None:
    config = {**without(BASE, "hybrid_override_pattern"), **keys}
    assert kinds(config) == ["mamba", "mlp", "attention"]


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (None, (0.0, None)),
        ([0.0, float("inf")], (0.0, None)),
        (json.loads('[0.0, {"__float__": "Infinity"}]'), (0.0, None)),
        ([0.001, 0.1], (0.001, 0.1)),
    ],
)
@pytest.mark.parametrize("key", ["time_step_limit", "mamba_dt_limit"])
def test_every_spelling_of_the_step_limits_is_read(key: str, limit: Any, expected: Any) -> None:
    config = {**BASE, "time_step_min": 0.001, "time_step_max": 0.1, key: limit}
    assert Config.read(config).time_step_limit == expected


def test_older_names_of_the_mamba_keys_are_read() -> None:
    older = {"mamba_n_groups": 4, "mamba_d_conv": 3, "mamba_conv_bias": False}
    config = Config.read({**BASE, **older})
    assert (config.n_groups, config.conv_kernel, config.use_conv_bias) == (4, 3, False)
    assert Config.read({**BASE, "attention_head_dim": 32}).head_dim == 32
    assert Config.read({**BASE, "norm_eps": 1e-6}).layer_norm_epsilon == 1e-6


def test_a_head_is_128_wide_whatever_the_width_by_heads() -> None:
    assert Config.read(BASE).head_dim == 128


def test_there_are_8_key_heads_where_the_key_is_absent() -> None:
    config = {**without(BASE, "num_key_value_heads"), "num_attention_heads": 16}
    assert Config.read(config).num_key_value_heads == 8
    # As many as there are query heads.
    assert Config.read({**config, "num_key_value_heads": None}).num_key_value_heads is None
    # Of no concern to a model without attention.
    assert Config.read({**without(EXPERTS, "num_key_value_heads")}).num_key_value_heads is None


def test_a_model_without_experts_needs_no_keys_for_them() -> None:
    assert all(block.experts is None for block in Config.read(BASE).blocks)


def test_experts_are_read() -> None:
    experts = Config.read({**EXPERTS, "moe_latent_size": 4, "n_group": 2}).blocks[1].experts
    assert experts is not None
    assert (experts.count, experts.per_token, experts.width) == (8, 3, 8)
    assert (experts.shared_width, experts.latent, experts.groups) == (12, 4, 2)
    renamed = without(EXPERTS, "n_routed_experts")
    again = Config.read({**renamed, "num_local_experts": 8, "n_shared_experts": 0}).blocks[1]
    assert again.experts is not None
    assert (again.experts.count, again.experts.shared_width) == (8, None)


def test_the_blocks_of_puzzle_have_numbers_of_their_own() -> None:
    config = without(EXPERTS, "num_experts_per_tok", "moe_intermediate_size")
    config["model_type"] = "nemotron_h_puzzle"
    config["block_configs"] = [
        {"block_type": "moe", "num_experts_per_tok": 1, "moe_intermediate_size": 8},
        {"block_type": "mamba", "num_experts_per_tok": None},
        {"block_type": "moe", "num_experts_per_tok": 4, "moe_intermediate_size": 16},
    ]
    experts = [block.experts for block in Config.read(config).blocks]
    assert [each and (each.per_token, each.width) for each in experts] == [(1, 8), None, (4, 16)]


@pytest.mark.parametrize("key", ["llm_config", "text_config"])
def test_the_text_part_of_a_larger_config_is_read(key: str) -> None:
    whole = {"model_type": "NemotronH_Nano_VL_V2", "hidden_size": 5, key: BASE}
    assert Config.read(whole).hidden_size == 16


@pytest.mark.parametrize(
    ("config", "word"),
    [
        (without(BASE, "hybrid_override_pattern"), "hybrid_override_pattern"),
        ({**BASE, "hybrid_override_pattern": "MX"}, "'X'"),
        ({**BASE, "hybrid_override_pattern": ["M"]}, "hybrid_override_pattern"),
        ({**BASE, "num_hidden_layers": 4}, r"'num_hidden_layers' \(4\) .* \(3\)"),
        ({**BASE, "hybrid_override_pattern": ""}, "blocks"),
        ({**BASE, "layers_block_type": "mamba"}, "layers_block_type"),
        ({**BASE, "layers_block_type": ["conv"]}, "conv"),
        ({**BASE, "block_configs": ["mamba"]}, "block_configs"),
        (without(BASE, "mamba_num_heads"), "mamba_num_heads"),
        (without(BASE, "num_attention_heads"), "num_attention_heads"),
        (without(BASE, "intermediate_size"), "intermediate_size"),
        ({**BASE, "n_groups": 3}, "n_groups"),
        ({**BASE, "num_key_value_heads": 3}, "num_key_value_heads"),
        ({**BASE, "mlp_hidden_act": "silu"}, "mlp_hidden_act"),
        ({**BASE, "mamba_hidden_act": "gelu"}, "mamba_hidden_act"),
        ({**BASE, "mamba_ssm_cache_dtype": "int8"}, "mamba_ssm_cache_dtype"),
        ({**BASE, "time_step_limit": [0.0]}, "time_step_limit"),
        ({**BASE, "time_step_limit": [1.0, 0.5]}, "time_step_limit"),
        ({**BASE, "time_step_limit": [-1.0, 0.5]}, "time_step_limit"),
        (without(EXPERTS, "n_routed_experts"), "n_routed_experts"),
        (without(EXPERTS, "moe_shared_expert_intermediate_size"), "moe_shared_expert"),
        ({**EXPERTS, "num_experts_per_tok": 9}, "num_experts_per_tok"),
        ({**EXPERTS, "n_group": 3}, "n_group"),
        ({**EXPERTS, "n_group": 8}, "n_group"),
        ({**EXPERTS, "n_group": 2, "topk_group": 3}, "topk_group"),
        ({**EXPERTS, "n_group": 4, "topk_group": 1}, "num_experts_per_tok"),
    ],
)
def test_a_contradiction_is_named(config: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        Config.read(config)


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ({"num_experts_per_tok": "3"}, "num_experts_per_tok"),
        (
            {"block_configs": [{"block_type": "moe", "moe_latent_size": True}]},
            "block_configs[0].moe_latent_size",
        ),
        ({"block_configs": [{"block_type": "moe"}], "n_group": 1.5}, "n_group"),
    ],
)
def test_a_wrong_number_of_experts_is_named_as_it_is_written(
    keys: dict[str, Any], key: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        Config.read({**EXPERTS, **keys})
    assert caught.value.key == key
    with pytest.raises(ConfigError) as caught:
        Config.read({"llm_config": {**EXPERTS, **keys}})
    assert caught.value.key == f"llm_config.{key}"


@pytest.mark.parametrize("model_type", list(SIBLINGS))
def test_a_sibling_is_refused_by_what_it_is(model_type: str) -> None:
    with pytest.raises(UnsupportedModelError, match=SIBLINGS[model_type].split(",")[0][:7]):
        Config.read({**BASE, "model_type": model_type})
