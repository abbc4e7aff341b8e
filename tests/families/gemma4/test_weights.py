"""Every layout that checkpoints come in fills the same model."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
import pytest

from phyla.errors import CheckpointError
from phyla.testing import Forward, prompt_ids, random_tensor, write_checkpoint, write_files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

SLIDING, FULL = "sliding_attention", "full_attention"
# One model with everything that has a weight of its own, which no published one has at once.
CONFIG: dict[str, Any] = {
    "model_type": "gemma4_text", "vocab_size": 300, "vocab_size_per_layer_input": 300,
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "num_global_key_value_heads": 1, "head_dim": 16,
    "global_head_dim": 32, "layer_types": [SLIDING, FULL, SLIDING, FULL], "sliding_window": 8,
    "attention_k_eq_v": True, "num_kv_shared_layers": 2, "use_double_wide_mlp": True,
    "hidden_size_per_layer_input": 8, "enable_moe_block": True, "num_experts": 4,
    "top_k_experts": 2, "moe_intermediate_size": 24, "final_logit_softcapping": 30.0,
    "tie_word_embeddings": True,
}  # fmt: skip
PROMPT = prompt_ids(20)

EXPERTS = re.compile(r"(layers\.\d+\.experts)\.(gate|up|down)_proj\.weight")


def tensor(name: str, *shape: int) -> mx.array:
    return mx.array(random_tensor(name, shape))


TOWERS = {
    name: tensor(name, 4, 4)
    for name in (
        "vision_tower.encoder.layers.0.self_attn.q_proj.linear.weight",
        "vision_tower.encoder.layers.0.self_attn.q_proj.input_max",
        "vision_tower.std_bias",
        "embed_vision.embedding_projection.weight",
        "embed_vision.multimodal_embedder.embedding_projection.weight",
        "vision_embedder.patch_dense.weight",
        "audio_tower.layers.0.lconv1d.depthwise_conv1d.weight",
        "embed_audio.embedding_projection.weight",
    )
}
# What Google's files hold for layers that read the keys of others.
UNUSED_KEYS = {
    f"layers.{layer}.self_attn.{part}.weight": tensor(part, 32, 64)
    for layer in (2, 3)
    for part in ("k_proj", "v_proj", "k_norm")
}


def fused(tensors: dict[str, mx.array]) -> dict[str, mx.array]:
    """Experts as in transformers' files."""
    renamed: dict[str, mx.array] = {}
    for name, array in tensors.items():
        match = EXPERTS.fullmatch(name)
        if match is None:
            renamed[name] = array
        elif match[2] == "down":
            renamed[f"{match[1]}.down_proj"] = array
        elif match[2] == "gate":
            up = tensors[f"{match[1]}.up_proj.weight"]
            renamed[f"{match[1]}.gate_up_proj"] = mx.concatenate([array, up], axis=1)
    return renamed


def one_by_one(tensors: dict[str, mx.array]) -> dict[str, mx.array]:
    """Experts as in some exports."""
    renamed: dict[str, mx.array] = {}
    for name, array in tensors.items():
        match = EXPERTS.fullmatch(name)
        if match is None:
            renamed[name] = array
            continue
        for index in range(array.shape[0]):
            renamed[f"{match[1]}.{index}.{match[2]}_proj.weight"] = array[index]
    return renamed


def stacked(tensors: dict[str, mx.array]) -> dict[str, mx.array]:
    """Experts as in MLX conversions."""
    return {
        EXPERTS.sub(r"\1.switch_glu.\2_proj.weight", name): array for name, array in tensors.items()
    }


def under(prefix: str, tensors: dict[str, mx.array]) -> dict[str, mx.array]:
    return {f"{prefix}{name}": array for name, array in tensors.items()}


def transformers(tensors: dict[str, mx.array]) -> dict[str, mx.array]:
    return {
        **under("model.language_model.", fused(tensors)),
        **under("model.", TOWERS),
    }


def google(tensors: dict[str, mx.array]) -> dict[str, mx.array]:
    """Transformers' names, and tensors that have no use."""
    return {
        **transformers(tensors),
        **under("model.language_model.", UNUSED_KEYS),
        "lm_head.weight": tensor("lm_head", 300, 64),
        "mtp.layers.0.self_attn.q_proj.weight": tensor("mtp", 4, 4),
    }


def mlx(tensors: dict[str, mx.array]) -> dict[str, mx.array]:
    return {**under("language_model.model.", stacked(tensors)), **TOWERS}


def mlx_with_unused_keys(tensors: dict[str, mx.array]) -> dict[str, mx.array]:
    return {**mlx(tensors), **under("language_model.model.", UNUSED_KEYS)}


def text_only(tensors: dict[str, mx.array]) -> dict[str, mx.array]:
    return under("model.", one_by_one(tensors))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("plain") / "tiny", CONFIG)


@pytest.fixture(scope="module")
def expected(folder: Path) -> NDArray[np.float32]:
    return Forward(folder).logits(PROMPT)


def held(folder: Path) -> dict[str, mx.array]:
    tensors = mx.load(str(folder / "model.safetensors"))
    assert isinstance(tensors, dict)
    return tensors


@pytest.mark.parametrize("layout", [transformers, google, mlx, mlx_with_unused_keys, text_only])
def test_every_layout_gives_the_same(
    layout: Callable[[dict[str, mx.array]], dict[str, mx.array]],
    folder: Path,
    expected: NDArray[np.float32],
    tmp_path: Path,
) -> None:
    again = write_files(tmp_path / "again", CONFIG, layout(held(folder)))
    np.testing.assert_array_equal(Forward(again).logits(PROMPT), expected)


def test_the_config_of_a_multimodal_checkpoint_gives_the_same(
    folder: Path, expected: NDArray[np.float32], tmp_path: Path
) -> None:
    config = {
        "model_type": "gemma4", "vocab_size": 300, "text_config": CONFIG, "image_token_id": 299,
        "vision_config": {}, "audio_config": None,
    }  # fmt: skip
    again = write_files(tmp_path / "again", config, transformers(held(folder)))
    np.testing.assert_array_equal(Forward(again).logits(PROMPT), expected)


def test_a_tensor_without_a_use_is_named(folder: Path, tmp_path: Path) -> None:
    extra = {"model.layers.0.self_attn.v_norm.weight": tensor("v_norm", 16)}
    again = write_files(tmp_path / "again", CONFIG, {**text_only(held(folder)), **extra})
    with pytest.raises(CheckpointError, match="v_norm"):
        Forward(again)


def test_a_soft_token_is_looked_up_as_the_padding(tmp_path: Path) -> None:
    text = {**CONFIG, "pad_token_id": 7}
    config = {
        "model_type": "gemma4", "vocab_size": 300, "text_config": text, "image_token_id": 290,
        "audio_token_id": 291, "video_token_id": 292,
    }  # fmt: skip
    forward = Forward(write_checkpoint(tmp_path / "tiny", config))
    soft, padded = forward.logits([1, 290, 291, 292, 2]), forward.logits([1, 7, 7, 7, 2])
    np.testing.assert_array_equal(soft, padded)


@pytest.mark.parametrize("prefix", ["model.", "language_model.model."])
def test_a_quantized_file_is_near_the_weights_that_it_was_made_from(
    prefix: str, tmp_path: Path
) -> None:
    wide = {
        **CONFIG, "hidden_size": 128, "intermediate_size": 128, "moe_intermediate_size": 64,
        "hidden_size_per_layer_input": 64, "head_dim": 32, "global_head_dim": 64,
    }  # fmt: skip
    path = f"{prefix}layers.0.router.proj"
    quantize = {
        "bits": 8, "group_size": 64, path: {"bits": 4, "group_size": 32},
        f"{prefix}layers.1.mlp.gate_proj": False,
    }  # fmt: skip

    def rename(name: str) -> str:
        return prefix + EXPERTS.sub(r"\1.switch_glu.\2_proj.weight", name)

    plain = Forward(write_checkpoint(tmp_path / "plain", wide)).logits(PROMPT)
    packed = write_checkpoint(tmp_path / "packed", wide, quantize=quantize, rename=rename)
    kept = Forward(packed, dtype="stored")
    layer = kept.model["layers"][0]
    assert layer.router.proj.bits == 4
    assert layer.experts.gate_proj.bits == 8
    stored, unpacked = kept.logits(PROMPT), Forward(packed).logits(PROMPT)
    spread = float(np.ptp(plain))
    assert float(np.abs(stored - unpacked).max()) < 1e-4 * spread
    assert float(np.abs(stored - plain).max()) < 0.2 * spread
