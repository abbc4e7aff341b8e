"""Configs of Qwen3-Next, Qwen3.5 and Qwen3-VL: every spelling, and what is refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from phyla.checkpoint.checkpoint import TensorInfo
from phyla.errors import ConfigError, UnsupportedModelError
from phyla_families.qwen3.config import Config as Qwen3Config
from phyla_families.qwen3.hybrid_config import Config
from phyla_families.qwen3.siblings import SIBLINGS
from phyla_families.qwen3.vl_config import VlConfig

TEXT: dict[str, Any] = {
    "model_type": "qwen3_5_text", "vocab_size": 8, "hidden_size": 16, "intermediate_size": 16,
    "num_hidden_layers": 8, "num_attention_heads": 2, "head_dim": 16, "rope_theta": 1e4,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8,
    "linear_value_head_dim": 8, "linear_conv_kernel_dim": 4,
}  # fmt: skip
EXPERTS: dict[str, Any] = {
    "model_type": "qwen3_5_moe_text", "num_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 8, "shared_expert_intermediate_size": 8,
}  # fmt: skip
NEXT = {**TEXT, **EXPERTS, "model_type": "qwen3_next"}


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"layer_types": ["full_attention"]}, "layer_types"),
        ({"layer_types": ["sliding_attention"] * 8}, "sliding_attention"),
        ({"full_attention_interval": 0}, "full_attention_interval"),
        ({"linear_num_value_heads": 3}, "linear_num_value_heads"),
        ({"linear_conv_kernel_dim": 1}, "linear_conv_kernel_dim"),
        ({"linear_key_head_dim": None}, "linear_key_head_dim"),
        ({"rope_theta": None}, "rope_theta"),
        ({"model_type": "qwen2"}, "model_type"),
        ({**EXPERTS, "num_experts_per_tok": 5}, "num_experts_per_tok"),
        ({**EXPERTS, "moe_intermediate_size": None}, "moe_intermediate_size"),
        ({**EXPERTS, "shared_expert_intermediate_size": None}, "shared_expert"),
        ({"hidden_act": "relu"}, "hidden_act"),
        ({"head_dim": 6, "partial_rotary_factor": 0.5}, "even number"),
    ],
)
def test_a_contradiction_is_named(changed: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        Config.read({**TEXT, **changed})


@pytest.mark.parametrize("broken", [5, "text", [TEXT]])
def test_a_text_part_that_is_no_object_is_named(broken: object) -> None:
    for read in (Config.read, VlConfig.read):
        with pytest.raises(ConfigError, match="text_config"):
            read({"model_type": "qwen3_5", "text_config": broken})


def test_the_classes_defaults_are_those_of_the_published_files() -> None:
    config = Config.read({key: value for key, value in TEXT.items() if key != "head_dim"})
    assert (config.head_dim, config.rope.partial_rotary_factor) == (256, 0.25)
    assert VlConfig.read({"text_config": {**TEXT, "head_dim": None}}).head_dim == 128


def test_every_spelling_of_the_rotation_is_read() -> None:
    rope = {"rope_theta": 1e4, "partial_rotary_factor": 0.5, "type": "default",
            "mrope_section": [2, 1, 1], "mrope_interleaved": True}  # fmt: skip
    bare = {key: value for key, value in TEXT.items() if key != "rope_theta"}
    for raw in (
        {**TEXT, "partial_rotary_factor": 0.5},
        {**TEXT, "partial_rotary_factor": 0.5, "rope_scaling": None},
        {**bare, "rope_parameters": rope},
        {**bare, "partial_rotary_factor": 0.25, "rope_parameters": rope},
    ):
        found = Config.read(raw).rope
        assert (found.theta, found.type, found.partial_rotary_factor) == (1e4, "default", 0.5)


def test_every_fourth_layer_attends_unless_the_config_says_otherwise() -> None:
    def attending(**keys: Any) -> list[int]:
        types = Config.read({**TEXT, **keys}).layer_types
        return [layer for layer, kind in enumerate(types) if kind == "full_attention"]

    assert attending() == [3, 7]
    assert attending(full_attention_interval=2) == [1, 3, 5, 7]
    listed = ["full_attention", *["linear_attention"] * 7]
    assert attending(layer_types=listed, full_attention_interval=2) == [0]


def test_only_qwen3_next_routes_by_keys() -> None:
    keys = {"norm_topk_prob": False, "decoder_sparse_step": 2, "mlp_only_layers": [1]}
    older = Config.read({**NEXT, **keys})
    assert not older.norm_topk_prob
    assert [older.is_sparse(layer) for layer in range(4)] == [False, False, False, True]
    later = Config.read({**TEXT, **EXPERTS, **keys})
    assert later.norm_topk_prob
    assert all(later.is_sparse(layer) for layer in range(4))
    dense = Config.read({**TEXT, **EXPERTS, "model_type": "qwen3_5_text"})
    assert dense.num_experts is None


@pytest.mark.parametrize("key", ["num_experts", "num_local_experts"])
def test_experts_are_counted_under_either_name(key: str) -> None:
    raw = {k: v for k, v in NEXT.items() if k != "num_experts"}
    assert Config.read({**raw, key: 4}).num_experts == 4
    assert Config.read({**raw, key: 0}).num_experts is None


def test_a_model_of_experts_alone_needs_no_width_of_other_mlps() -> None:
    raw = {k: v for k, v in {**TEXT, **EXPERTS}.items() if k != "intermediate_size"}
    assert Config.read(raw).num_experts == 4
    with pytest.raises(ConfigError, match="intermediate_size"):
        Config.read({k: v for k, v in TEXT.items() if k != "intermediate_size"})


@pytest.mark.parametrize("inner", [True, False, None])
@pytest.mark.parametrize("outer", [True, False, None])
def test_the_outer_config_says_whether_the_head_is_tied(
    outer: bool | None, inner: bool | None
) -> None:
    raw = {"model_type": "qwen3_5", "tie_word_embeddings": outer,
           "text_config": {**TEXT, "tie_word_embeddings": inner}}  # fmt: skip
    assert Config.read(raw).tie_word_embeddings is outer
    assert VlConfig.read(raw).tie_word_embeddings is outer


@pytest.mark.parametrize(
    ("shape", "found"), [((96, 1, 4), True), ((96, 4, 1), False), (None, False)]
)
def test_the_form_of_the_norms_is_told_by_the_kernels(
    shape: tuple[int, ...] | None, found: bool
) -> None:
    names: dict[str, tuple[int, ...]] = {"mtp.norm.weight": (16,), "model.norm.weight": (16,)}
    if shape is not None:
        names["model.layers.0.linear_attn.conv1d.weight"] = shape
    tensors = {name: TensorInfo(name, size, "F32", 0, "") for name, size in names.items()}
    checkpoint: Any = SimpleNamespace(tensors=tensors)
    assert Config.read(TEXT).settle(checkpoint).zero_centred is found


def test_the_router_of_qwen3_vl_always_normalizes() -> None:
    raw = {**TEXT, **EXPERTS, "model_type": "qwen3_vl_moe_text", "norm_topk_prob": False}
    assert VlConfig.read({"model_type": "qwen3_vl_moe", "text_config": raw}).norm_topk_prob


@pytest.mark.parametrize("kind", list(SIBLINGS))
def test_what_looks_alike_is_refused_by_its_name(kind: str) -> None:
    for read in (Config.read, Qwen3Config.read):
        with pytest.raises(UnsupportedModelError) as caught:
            read({**TEXT, "model_type": kind})
        assert SIBLINGS[kind] in str(caught.value)
        assert caught.value.model_type == kind


@pytest.mark.parametrize(
    "head", ["Qwen3ForSequenceClassification", "Qwen3_5ForTokenClassification", "Qwen3Model"]
)
def test_another_head_is_refused(head: str) -> None:
    for read in (Config.read, Qwen3Config.read, VlConfig.read):
        with pytest.raises(UnsupportedModelError, match=head):
            read({**TEXT, "architectures": [head]})
