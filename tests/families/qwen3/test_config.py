"""Configs of Qwen3 that contradict themselves are refused before a model is built."""

from __future__ import annotations

from typing import Any

import pytest

from phyla.errors import ConfigError
from phyla_families.qwen3.config import Config

BASE = {
    "model_type": "qwen3", "vocab_size": 8, "hidden_size": 16, "intermediate_size": 16,
    "num_hidden_layers": 2, "num_attention_heads": 2, "head_dim": 8, "rope_theta": 1e4,
}  # fmt: skip
EXPERTS = {
    "model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 8,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"layer_types": ["full_attention"]}, "layer_types"),
        ({"layer_types": ["full_attention", "no_attention"]}, "no_attention"),
        ({"layer_types": "full"}, "layer_types"),
        ({**EXPERTS, "num_experts_per_tok": 5}, "num_experts_per_tok"),
        ({"hidden_act": "relu"}, "hidden_act"),
    ],
)
def test_a_contradiction_is_named(changed: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        Config.read({**BASE, **changed})


def test_what_fits_is_read() -> None:
    kinds = ["full_attention", "sliding_attention"]
    windowed = {"use_sliding_window": True, "sliding_window": 4, "layer_types": kinds}
    config = Config.read({**BASE, **windowed})
    assert [config.window(layer) for layer in (0, 1)] == [None, 4]
    assert Config.read({**BASE, **EXPERTS, "num_experts_per_tok": 4}).is_sparse(0)
