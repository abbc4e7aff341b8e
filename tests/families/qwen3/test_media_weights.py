"""The tower under every name that it has; checkpoints without one; configs that do not fit."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
import pytest

from phyla.checkpoint import open_checkpoint
from phyla.errors import CheckpointError, ConfigError
from phyla.family import MediaReaders
from phyla.registry import discover
from phyla.testing import (
    Forward,
    assert_close,
    prompt_ids,
    read_tiny,
    write_checkpoint,
    write_files,
)
from phyla_families.qwen3.vl_config import VlConfig

if TYPE_CHECKING:
    from collections.abc import Callable

    Tensors = dict[str, mx.array]

TABLE = read_tiny(Path(__file__).with_name("media.json"))
PROMPT = prompt_ids(9)
BLOCK = r"visual\.blocks\.(\d+)\."
KERNEL = "visual.patch_embed.proj.weight"
FRAMES = np.random.default_rng(0).integers(0, 256, (3, 16, 24, 3)).astype(np.uint8)


def tensors_of(folder: Path) -> Tensors:
    tensors = mx.load(str(folder / "model.safetensors"))
    assert isinstance(tensors, dict)
    return tensors


def upstream(tensors: Tensors) -> Tensors:
    """The tower's names and kernel as Hugging Face has them."""
    renamed: Tensors = {}
    for name, tensor in tensors.items():
        if match := re.fullmatch(BLOCK + r"self_attn\.q_proj\.(.*)", name):
            parts = [tensors[name.replace("q_proj", f"{part}_proj")] for part in "qkv"]
            renamed[f"visual.blocks.{match[1]}.attn.qkv.{match[2]}"] = mx.concatenate(parts)
        elif not re.fullmatch(BLOCK + r"self_attn\.[kv]_proj\..*", name):
            name = name.replace("self_attn.out_proj", "attn.proj") if "visual" in name else name
            name = re.sub(BLOCK + "layer_norm", r"visual.blocks.\1.norm", name)
            name = re.sub(BLOCK + r"mlp\.fc", r"visual.blocks.\1.mlp.linear_fc", name)
            renamed[name] = tensor.transpose(0, 4, 1, 2, 3) if name == KERNEL else tensor
    return renamed


def published(tensors: Tensors) -> Tensors:
    return {
        (f"model.{name}" if name.startswith("visual.") else f"model.language_model.{name}")
        if name != "lm_head.weight"
        else name: tensor
        for name, tensor in upstream(tensors).items()
    }


def first_release(tensors: Tensors) -> Tensors:
    return {
        name if name.startswith(("visual.", "lm_head")) else f"language_model.{name}": tensor
        for name, tensor in upstream(tensors).items()
    }


def conversion(tensors: Tensors) -> Tensors:
    renamed: Tensors = {}
    for name, tensor in upstream(tensors).items():
        if name.startswith("visual."):
            new = name.replace("visual.", "vision_tower.", 1)
            renamed[new] = tensor.transpose(0, 2, 3, 4, 1) if name == KERNEL else tensor
        elif name.startswith("lm_head"):
            renamed[f"language_model.{name}"] = tensor
        else:
            renamed[f"language_model.model.{name}"] = tensor
    return renamed


def features(forward: Forward) -> list[np.ndarray]:
    arrays = {
        "frames": mx.array(FRAMES),
        "scale": mx.array([1 / 127.5] * 3),
        "shift": mx.array([-1.0] * 3),
    }
    found = forward.model.media_features("video", arrays)
    return [np.array(rows) for rows in (found.hidden, *found.deep)]


@pytest.mark.parametrize("name", ["vl", "3.5"])
@pytest.mark.parametrize("layout", [published, first_release, conversion])
def test_every_layout_fills_the_same_tower(
    name: str, layout: Callable[[Tensors], Tensors], tmp_path: Path
) -> None:
    plain = TABLE[name].write(tmp_path / "plain")
    ours = features(Forward(plain))
    folder = write_files(tmp_path / "laid out", TABLE[name].config, layout(tensors_of(plain)))
    theirs = features(Forward(folder))
    assert [rows.shape for rows in ours] == [(12, 64)] * (3 if name == "vl" else 1)
    for found, expected in zip(theirs, ours, strict=True):
        assert_close(found, expected, tolerance=1e-6)


@pytest.mark.parametrize("name", list(TABLE))
def test_a_checkpoint_without_a_tower_still_writes_text(name: str, tmp_path: Path) -> None:
    folder = TABLE[name].write(tmp_path / "whole")
    expected = Forward(folder).logits(PROMPT)
    text = {key: tensor for key, tensor in tensors_of(folder).items() if "visual" not in key}
    text_only = write_files(tmp_path / "text", TABLE[name].config, text)
    forward = Forward(text_only)
    assert_close(forward.logits(PROMPT), expected, tolerance=1e-6)
    checkpoint = open_checkpoint(text_only, offline=True)
    family = discover().family_for(checkpoint)
    config = family.config.read(checkpoint.config).settle(checkpoint)
    assert family.media(config, checkpoint) == MediaReaders()
    with pytest.raises(NotImplementedError, match="image"):
        forward.model.media_features("image", {})
    assert forward.model.media_positions(np.array(PROMPT, np.int32), []) is None


def test_a_tower_that_config_json_does_not_mention_is_left_out(tmp_path: Path) -> None:
    folder = TABLE["3.5"].write(tmp_path / "whole")
    config = {key: value for key, value in TABLE["3.5"].config.items() if key != "vision_config"}
    text_only = write_files(tmp_path / "text", config, tensors_of(folder))
    assert_close(Forward(text_only).logits(PROMPT), Forward(folder).logits(PROMPT), tolerance=1e-6)


def test_a_tower_with_a_tensor_missing_is_an_error(tmp_path: Path) -> None:
    folder = TABLE["vl"].write(tmp_path / "whole")
    tensors = tensors_of(folder)
    del tensors["visual.merger.linear_fc1.bias"]
    broken = write_files(tmp_path / "broken", TABLE["vl"].config, tensors)
    with pytest.raises(CheckpointError, match=r"visual\.merger\.linear_fc1\.bias"):
        Forward(broken)


def test_a_quantized_tower_is_near_the_plain_one(tmp_path: Path) -> None:
    quantize = {"group_size": 32, "bits": 8, "visual.patch_embed.proj": False}
    ours = features(Forward(TABLE["vl"].write(tmp_path / "plain")))
    folder = write_checkpoint(tmp_path / "packed", TABLE["vl"].config, quantize=quantize)
    assert "visual.pos_embed.scales" in tensors_of(folder)
    for found, expected in zip(features(Forward(folder)), ours, strict=True):
        assert_close(found, expected, tolerance=0.05)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("num_heads", 3, "'num_heads'"),
        ("num_position_embeddings", 15, "a square"),
        ("hidden_act", "gelu", "'gelu_pytorch_tanh'"),
        ("patch_size", 0, r"vision_config\.patch_size"),
        ("deepstack_visual_indexes", [2, 1], "'deepstack_visual_indexes' rise"),
        ("deepstack_visual_indexes", [4], "below its 'depth'"),
        ("in_channels", 1, "3 'in_channels'"),
        ("out_hidden_size", 32, "equal to the text part's 'hidden_size'"),
    ],
)
def test_a_tower_that_cannot_be_built_is_refused(key: str, value: object, words: str) -> None:
    config: dict[str, Any] = dict(TABLE["vl"].config)
    config["vision_config"] = {**config["vision_config"], key: value}
    with pytest.raises(ConfigError, match=words):
        VlConfig.read(config)


def test_the_published_blocks_of_qwen3_vl_are_taken_where_the_file_does_not_say() -> None:
    config: dict[str, Any] = dict(TABLE["vl"].config)
    config["vision_config"] = {"out_hidden_size": 64}
    read = VlConfig.read(config)
    assert read.vision is not None
    assert read.vision.deepstack_visual_indexes == (8, 16, 24)
