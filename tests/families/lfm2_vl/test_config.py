"""config.json of LFM2: its spellings, its rule for a width, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from phyla.errors import ConfigError, UnsupportedModelError
from phyla_families.lfm2_vl.config import Config
from phyla_families.lfm2_vl.siblings import SIBLINGS

BASE: dict[str, Any] = {
    "model_type": "lfm2", "vocab_size": 8, "hidden_size": 16, "intermediate_size": 96,
    "num_hidden_layers": 3, "num_attention_heads": 2, "num_key_value_heads": 1,
    "full_attn_idxs": [1], "block_multiple_of": 16,
}  # fmt: skip
EXPERTS: dict[str, Any] = {
    **BASE, "model_type": "lfm2_moe", "num_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 8, "num_dense_layers": 2,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "width"),
    [
        ({}, 64),
        ({"intermediate_size": 12288, "block_multiple_of": 256}, 8192),
        ({"intermediate_size": 6656, "block_multiple_of": None}, 4608),
        ({"block_ffn_dim_multiplier": 1.3}, 96),
        ({"intermediate_size": 100}, 80),
        ({"intermediate_size": 100, "block_ffn_dim_multiplier": None}, 66),
        ({"block_auto_adjust_ff_dim": False}, 96),
        ({"block_ff_dim": 48}, 32),
        ({"block_ff_dim": None}, 64),
    ],
)
def test_the_width_of_an_mlp_follows_the_rule(changed: dict[str, Any], width: int) -> None:
    raw = {k: v for k, v in {**BASE, **changed}.items() if k != "block_multiple_of" or v}
    assert Config.read(raw).intermediate_size == width


def test_a_mixture_of_experts_takes_its_width_as_it_is() -> None:
    config = Config.read({**EXPERTS, "block_ff_dim": 48})
    assert config.intermediate_size == 96
    assert [config.is_sparse(layer) for layer in range(3)] == [False, False, True]


@pytest.mark.parametrize("kind", ["lfm2", "lfm2_moe", "lfm2_vl"])
def test_absent_keys_have_the_reference_s_defaults(kind: str) -> None:
    absent = ("num_key_value_heads", "num_dense_layers")
    keys = {k: v for k, v in EXPERTS.items() if k not in absent}
    keys |= {"num_attention_heads": 16, "hidden_size": 64, "model_type": kind}
    if kind == "lfm2_vl":
        keys = {"model_type": kind, "text_config": {**keys, "model_type": "lfm2"}}
    config = Config.read(keys)
    assert (config.num_key_value_heads, config.num_dense_layers) == (8, 2)


@pytest.mark.parametrize(
    ("changed", "kinds"),
    [
        ({}, ("conv", "full_attention", "conv")),
        ({"layer_types": ["full_attention", "conv", "conv"]}, ("full_attention", "conv", "conv")),
        ({"full_attn_idxs": None}, ("full_attention",) * 3),
    ],
)
def test_layer_types_win_over_indices(changed: dict[str, Any], kinds: tuple[str, ...]) -> None:
    assert Config.read({**BASE, **changed}).layer_types == kinds


@pytest.mark.parametrize(
    ("keys", "tied"),
    [
        ({}, True),
        ({"tie_word_embeddings": False}, False),
        ({"tie_embedding": False, "tie_word_embeddings": True}, False),
        ({"tie_embedding": True, "tie_word_embeddings": False}, True),
    ],
)
def test_the_older_spelling_of_the_tie_wins(keys: dict[str, bool], tied: bool) -> None:
    assert Config.read({**BASE, **keys}).tied is tied
    inner = {**BASE, "tie_word_embeddings": not tied} if keys else BASE
    assert Config.read({"model_type": "lfm2_vl", **keys, "text_config": inner}).tied is tied


@pytest.mark.parametrize(
    ("keys", "theta"),
    [
        ({}, 1e6),
        ({"rope_theta": 5e6}, 5e6),
        ({"rope_theta": 1e6, "rope_parameters": {"rope_theta": 1e7}}, 1e7),
    ],
)
def test_the_nested_theta_wins(keys: dict[str, Any], theta: float) -> None:
    assert Config.read({**BASE, **keys}).rope.theta == theta


@pytest.mark.parametrize(
    ("config", "word"),
    [
        ({**BASE, "layer_types": ["conv"]}, "layer_types"),
        ({**BASE, "layer_types": ["conv", "mamba", "conv"]}, "mamba"),
        ({**BASE, "full_attn_idxs": 3}, "full_attn_idxs"),
        ({**BASE, "num_hidden_layers": None}, "num_hidden_layers"),
        ({**BASE, "intermediate_size": None}, "intermediate_size"),
        ({**BASE, "block_multiple_of": 0}, "block_multiple_of"),
        ({**BASE, "block_ffn_dim_multiplier": "1"}, "block_ffn_dim_multiplier"),
        ({**BASE, "conv_L_cache": 1}, "conv_L_cache"),
        ({**EXPERTS, "num_experts_per_tok": 5}, "num_experts_per_tok"),
        ({**EXPERTS, "num_experts": None}, "num_experts"),
        ({**EXPERTS, "full_attn_idxs": None}, "layer_types"),
    ],
)
def test_a_contradiction_is_named(config: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        Config.read(config)


@pytest.mark.parametrize(
    ("keys", "word"),
    [
        *[({"model_type": kind}, what.split(",")[0]) for kind, what in SIBLINGS.items()],
        ({"auto_map": {"AutoModel": "modeling_d1.D1Model"}}, "d1"),
        ({"architectures": ["Lfm2Model"]}, "encoder"),
    ],
)
def test_a_sibling_is_refused_by_what_it_is(keys: dict[str, Any], word: str) -> None:
    with pytest.raises(UnsupportedModelError, match=word) as caught:
        Config.read({**BASE, **keys})
    assert caught.value.model_type == keys.get("model_type", "lfm2")
