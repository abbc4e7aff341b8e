"""Every layout that checkpoints of Qwen3-Next, Qwen3.5 and Qwen3-VL come in fills the same model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten

from phyla.errors import CheckpointError
from phyla.registry import discover
from phyla.testing import (
    Forward,
    assert_close,
    prompt_ids,
    random_tensor,
    read_tiny,
    write_checkpoint,
    write_files,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Tensors = dict[str, mx.array]

TABLE = read_tiny(Path(__file__).with_name("tiny.json"))
PROMPT = prompt_ids(20)

HYBRID = ("next", "3.5", "3.5 of experts")
VL = ("vl", "vl of experts")

EXPERTS = re.compile(r"(layers\.\d+\.mlp)\.switch_mlp\.(gate|up|down)_proj\.weight")
# The norms that lie around zero in Hugging Face files; not the gated one.
NORMS = re.compile(r"(layers\.\d+\.(input_layernorm|post_attention_layernorm|self_attn\.[qk]_norm)"
                   r"|norm)\.weight")  # fmt: skip
KERNEL = "linear_attn.conv1d.weight"


def parameters(config: dict[str, Any]) -> Tensors:
    """Random tensors as an MLX conversion has them, under the model's names."""
    family = discover().family_for(_seen(config))
    model = family.model(family.config.read(config))
    return {
        name: mx.array(random_tensor(name, parameter.shape))
        for name, parameter in dict(tree_flatten(model.parameters())).items()
    }


def _seen(config: dict[str, Any]) -> Any:
    from types import SimpleNamespace

    return SimpleNamespace(config=config, model_type=config["model_type"], chat_template=None)


def upstream(tensors: Tensors) -> Tensors:
    """Kernels and norms as Hugging Face has them; Qwen3-VL's norms do not lie around zero."""
    if not any(name.endswith(KERNEL) for name in tensors):
        return tensors

    def turn(name: str, tensor: mx.array) -> mx.array:
        if name.endswith(KERNEL):
            return tensor.swapaxes(1, 2)
        return tensor - 1 if NORMS.fullmatch(name) else tensor

    return {name: turn(name, tensor) for name, tensor in tensors.items()}


def one_by_one(tensors: Tensors) -> Tensors:
    renamed: Tensors = {}
    for name, tensor in tensors.items():
        match = EXPERTS.fullmatch(name)
        if match is None:
            renamed[name] = tensor
            continue
        for index in range(tensor.shape[0]):
            renamed[f"{match[1]}.experts.{index}.{match[2]}_proj.weight"] = tensor[index]
    return renamed


def fused(tensors: Tensors, *, turned: bool = False) -> Tensors:
    renamed: Tensors = {}
    for name, tensor in tensors.items():
        match = EXPERTS.fullmatch(name)
        if match is None:
            renamed[name] = tensor
        elif match[2] == "down":
            renamed[f"{match[1]}.experts.down_proj"] = tensor
        elif match[2] == "gate":
            up = tensors[f"{match[1]}.switch_mlp.up_proj.weight"]
            renamed[f"{match[1]}.experts.gate_up_proj"] = mx.concatenate([tensor, up], axis=1)
    if turned:
        for name, tensor in renamed.items():
            if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
                renamed[name] = tensor.swapaxes(1, 2)
    return renamed


def under(prefix: str, tensors: Tensors, *, head: str = "") -> Tensors:
    """All names but the head's below a prefix."""
    return {
        f"{head if name.startswith('lm_head') else prefix}{name}": tensor
        for name, tensor in tensors.items()
    }


def extras(*names: str) -> Tensors:
    return {name: mx.array(random_tensor(name, (4, 4))) for name in names}


TOWER = ("patch_embed.proj.weight", "blocks.0.attn.qkv.bias", "merger.linear_fc1.weight")
DRAFTER = ("fc.weight", "layers.0.input_layernorm.weight", "norm.weight",
           "layers.0.mlp.experts.0.gate_proj.weight")  # fmt: skip


def published(tensors: Tensors) -> Tensors:
    """With a tower, and with layers that draft tokens ahead, whose experts are experts too."""
    return {
        **under("model.language_model.", fused(upstream(tensors))),
        **extras(*(f"model.visual.{name}" for name in TOWER)),
        **extras(*(f"mtp.{name}" for name in DRAFTER)),
    }


def text_only(tensors: Tensors) -> Tensors:
    return under("model.", one_by_one(upstream(tensors)))


def first_release(tensors: Tensors) -> Tensors:
    return {
        **under("language_model.", one_by_one(upstream(tensors))),
        **extras(*(f"visual.{name}" for name in TOWER)),
    }


def conversion(tensors: Tensors) -> Tensors:
    return {
        **under("language_model.model.", tensors, head="language_model."),
        **extras(*(f"vision_tower.{name}" for name in TOWER)),
    }


def conversion_with_its_drafter(tensors: Tensors) -> Tensors:
    """`mtp.*` is no sign of a raw file, nor is the prefix `model.`."""
    return {
        **under("model.", tensors),
        **extras(*(f"language_model.mtp.{name}" for name in DRAFTER)),
    }


def turned_experts(tensors: Tensors) -> Tensors:
    return under("model.language_model.", fused(upstream(tensors), turned=True))


def logits(folder: Path, config: dict[str, Any], tensors: Tensors) -> NDArray[np.float32]:
    return Forward(write_files(folder, config, tensors)).logits(PROMPT)


@pytest.mark.parametrize("name", [*HYBRID, *VL])
@pytest.mark.parametrize(
    "layout",
    [
        published, text_only, first_release, conversion, conversion_with_its_drafter,
        turned_experts,
    ],
)  # fmt: skip
def test_every_layout_gives_the_same(
    name: str, layout: Callable[[Tensors], Tensors], tmp_path: Path
) -> None:
    config = dict(TABLE[name].config)
    # Of the text part; a tower in the file is then left out.
    config.pop("vision_config", None)
    tensors = parameters(config)
    expected = logits(tmp_path / "plain", config, tensors)
    assert_close(logits(tmp_path / "laid out", config, layout(tensors)), expected, tolerance=1e-5)


@pytest.mark.parametrize("width", [32, 64])
@pytest.mark.parametrize("turned", [False, True])
def test_square_experts_are_told_apart_by_the_other_tensor(
    width: int, turned: bool, tmp_path: Path
) -> None:
    config = dict(TABLE["vl of experts"].config)
    config["text_config"] = {**config["text_config"], "moe_intermediate_size": width}
    tensors = parameters(config)
    expected = logits(tmp_path / "plain", config, tensors)
    found = logits(tmp_path / "fused", config, fused(tensors, turned=turned))
    assert_close(found, expected, tolerance=1e-6)


@pytest.mark.parametrize("outer", [True, None])
def test_a_copy_of_the_embedding_is_left_out_of_a_tied_model(
    outer: bool | None, tmp_path: Path
) -> None:
    config = dict(TABLE["3.5"].config)
    tensors = parameters(config)
    expected = logits(tmp_path / "plain", config, tensors)
    if outer is None:  # the inner one does not decide, but there is no head
        config.pop("tie_word_embeddings")
    else:
        tensors["lm_head.weight"] = tensors["embed_tokens.weight"]
    assert_close(logits(tmp_path / "copy", config, tensors), expected, tolerance=1e-6)


def test_a_head_of_its_own_is_used_whatever_the_text_part_says(tmp_path: Path) -> None:
    config = dict(TABLE["3.5"].config)
    tensors = parameters(config)
    tied = logits(tmp_path / "tied", config, tensors)
    config["tie_word_embeddings"] = False
    tensors["lm_head.weight"] = tensors["embed_tokens.weight"] * 2
    assert_close(logits(tmp_path / "untied", config, tensors), 2 * tied, tolerance=1e-5)


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    config = dict(TABLE["3.5"].config)
    tensors = parameters(config)
    del tensors["layers.1.linear_attn.A_log"]
    with pytest.raises(CheckpointError, match=r"layers\.1\.linear_attn\.A_log"):
        logits(tmp_path, config, tensors)


ROUTERS = {"group_size": 32, "bits": 8}


def converted(name: str) -> str:
    return f"model.{name}" if not name.startswith("lm_head") else name


def converted_multimodal(name: str) -> str:
    return f"language_model.{converted(name)}"


@pytest.mark.parametrize(
    ("name", "rename"),
    [
        ("next", converted),
        ("3.5", converted_multimodal),
        ("3.5 of experts", converted_multimodal),
    ],
)
@pytest.mark.parametrize("bits", [None, 4])
@pytest.mark.parity
def test_a_conversion_equals_mlx_lm(
    name: str, rename: Callable[[str], str], bits: int | None, tmp_path: Path
) -> None:
    from mlx_lm.utils import load_model

    config = dict(TABLE[name].config)
    config.pop("vision_config", None)
    if name == "next":  # mlx-lm wants a key that the class has a default for
        config["full_attention_interval"] = 4
    routers = {
        f"{rename('layers.1.mlp')}.{gate}": ROUTERS for gate in ("gate", "shared_expert_gate")
    }
    quantize = None
    if bits is not None:
        quantize = {"group_size": 32, "bits": bits, **routers}
    folder = write_checkpoint(tmp_path, config, quantize=quantize, rename=rename)
    peer, _ = load_model(folder)
    expected = np.array(peer(mx.array([PROMPT]))[0])
    assert_close(Forward(folder, dtype="stored").logits(PROMPT), expected)
    assert_close(Forward(folder, dtype="float32").logits(PROMPT), expected)
