"""Every layout that LFM2's tensors are published in gives the same model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten

from phyla.errors import CheckpointError
from phyla.testing import Forward, assert_close, prompt_ids, read_tiny, write_files
from phyla_families.lfm2_vl.projector import Projector
from phyla_families.lfm2_vl.vision import VisionTower
from phyla_families.lfm2_vl.vision_config import VisionConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from phyla.testing import Tiny

TABLE = read_tiny(Path(__file__).with_name("tiny.json"))
PROMPT = prompt_ids(20)
UPSTREAM = (
    (r"^norm\.", "embedding_norm."),
    (r"self_attn\.o_proj", "self_attn.out_proj"),
    (r"self_attn\.([qk])_norm", r"self_attn.\1_layernorm"),
    (r"feed_forward\.gate\.proj", "feed_forward.gate"),
    (r"feed_forward\.gate\.expert_bias", "feed_forward.expert_bias"),
)
LETTERS = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
DENSE = re.compile(r"(.*feed_forward)\.(gate|up|down)_proj\.(.*)")
EXPERTS = re.compile(r"(.*feed_forward)\.switch_mlp\.(gate|up|down)_proj\.weight")
Tensors = dict[str, mx.array]


def named_upstream(tensors: Mapping[str, mx.array]) -> Tensors:
    """Upstream's names, except of the experts; without any prefix."""
    named: Tensors = {}
    for name, tensor in tensors.items():
        for pattern, into in UPSTREAM:
            name = re.sub(pattern, into, name)
        if match := DENSE.fullmatch(name):
            name = f"{match[1]}.{LETTERS[match[2] + '_proj']}.{match[3]}"
        named[name] = tensor
    return named


def kernels_upstream(tensors: Mapping[str, mx.array]) -> Tensors:
    """`[D, K, 1]` as `[D, 1, K]`."""
    return {
        name: tensor.swapaxes(1, 2) if name.endswith("conv.conv.weight") else tensor
        for name, tensor in tensors.items()
    }


def prefixed(tensors: Mapping[str, mx.array], prefix: str) -> Tensors:
    """A prefix before everything but the head."""
    return {n if n.startswith("lm_head") else prefix + n: t for n, t in tensors.items()}


def one_by_one(tensors: Mapping[str, mx.array]) -> Tensors:
    """Stacked experts, each under a number of its own."""
    single: Tensors = {}
    for name, tensor in tensors.items():
        if match := EXPERTS.fullmatch(name):
            letter = LETTERS[match[2] + "_proj"]
            for index, part in enumerate(tensor):
                single[f"{match[1]}.experts.{index}.{letter}.weight"] = part
        else:
            single[name] = tensor
    return single


def fused(tensors: Mapping[str, mx.array]) -> Tensors:
    """Stacked experts as transformers 5 holds them in memory."""
    joined = dict(tensors)
    for name in tensors:
        match = EXPERTS.fullmatch(name)
        if match and match[2] == "gate":
            stem = f"{match[1]}.switch_mlp"
            parts = [joined.pop(f"{stem}.{part}_proj.weight") for part in ("gate", "up")]
            joined[f"{match[1]}.experts.gate_up_proj"] = mx.concatenate(parts, axis=1)
            joined[f"{match[1]}.experts.down_proj"] = joined.pop(f"{stem}.down_proj.weight")
    return joined


def hugging_face(tensors: Mapping[str, mx.array]) -> Tensors:
    return prefixed(one_by_one(kernels_upstream(named_upstream(tensors))), "model.")


def hugging_face_fused(tensors: Mapping[str, mx.array]) -> Tensors:
    return prefixed(fused(kernels_upstream(named_upstream(tensors))), "model.")


def mlx_conversion(tensors: Mapping[str, mx.array]) -> Tensors:
    return prefixed(named_upstream(tensors), "model.")


def mlx_conversion_of_experts(tensors: Mapping[str, mx.array]) -> Tensors:
    """It renames the parts of dense MLPs too."""
    letters = {letter: name for name, letter in LETTERS.items()}
    return {
        re.sub(r"feed_forward\.(w[123])\.", lambda m: f"feed_forward.{letters[m[1]]}.", name): each
        for name, each in mlx_conversion(tensors).items()
    }


TOWER: dict[str, Any] = {
    "model_type": "siglip2_vision_model", "hidden_size": 32, "intermediate_size": 48,
    "num_hidden_layers": 1, "num_attention_heads": 4,
}  # fmt: skip


def with_tower(tensors: Mapping[str, mx.array], prefix: str, level: str) -> Tensors:
    """A vision tower's tensors beside the text part."""
    tower = VisionTower(VisionConfig.model_validate(TOWER))
    projector = Projector(32, 40, 64, factor=2, bias=True, layer_norm=True)
    parts: Tensors = {
        **dict(tree_flatten(tower.parameters(), f".vision_tower.{level}".rstrip("."))),
        **dict(tree_flatten(projector.parameters(), ".multi_modal_projector")),
    }
    named = {n.replace(".layers.", ".encoder.layers."): each for n, each in parts.items()}
    return {**tensors, **{prefix + name: each for name, each in named.items()}}


def vl(tensors: Mapping[str, mx.array]) -> Tensors:
    """As transformers 5 writes it."""
    text = prefixed(kernels_upstream(named_upstream(tensors)), "model.language_model.")
    return with_tower(text, "model.", "")


def vl_published(tensors: Mapping[str, mx.array]) -> Tensors:
    """As the first releases have it."""
    text = prefixed(kernels_upstream(named_upstream(tensors)), "model.language_model.")
    return with_tower(text, "model.", "vision_model.")


def vl_mlx_conversion(tensors: Mapping[str, mx.array]) -> Tensors:
    text = {
        f"language_model.{name}": tensor
        for name, tensor in prefixed(named_upstream(tensors), "model.").items()
    }
    return with_tower(text, "", "")


def written(tiny: Tiny, folder: Path) -> tuple[Tensors, NDArray[np.float32]]:
    """A checkpoint's tensors under the model's own names, and the logits they give."""
    tiny.write(folder)
    tensors = mx.load(str(folder / "model.safetensors"))
    assert isinstance(tensors, dict)
    return tensors, Forward(folder).logits(PROMPT)


def vl_config(tiny: Tiny) -> dict[str, Any]:
    """The config of a vision-language model around a text part."""
    return {
        "model_type": "lfm2_vl", "architectures": ["Lfm2VlForConditionalGeneration"],
        "vocab_size": tiny.config["vocab_size"], "text_config": dict(tiny.config),
        "vision_config": TOWER,
        "image_token_id": 5, "downsample_factor": 2, "projector_hidden_size": 40,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("untied", hugging_face),
        ("untied", mlx_conversion),
        ("conv last, kernel of 4, biased", hugging_face),
        ("experts", hugging_face),
        ("experts", hugging_face_fused),
        ("experts", mlx_conversion),
        ("experts", mlx_conversion_of_experts),
        ("experts, not normalized, none dense", hugging_face),
    ],
)
def test_every_layout_gives_the_same(
    name: str, layout: Callable[[Mapping[str, mx.array]], Tensors], tmp_path: Path
) -> None:
    tensors, expected = written(TABLE[name], tmp_path / "own")
    folder = write_files(tmp_path / "other", TABLE[name].config, layout(tensors))
    assert_close(Forward(folder).logits(PROMPT), expected)


@pytest.mark.parametrize("name", ["tied", "experts"])
@pytest.mark.parametrize("layout", [vl, vl_published, vl_mlx_conversion])
@pytest.mark.parametrize("model_type", ["lfm2_vl", "lfm2-vl"])
def test_the_text_part_of_a_vision_model_loads(
    name: str,
    layout: Callable[[Mapping[str, mx.array]], Tensors],
    model_type: str,
    tmp_path: Path,
) -> None:
    tensors, expected = written(TABLE[name], tmp_path / "own")
    config = {**vl_config(TABLE[name]), "model_type": model_type}
    folder = write_files(tmp_path / "vl", config, layout(tensors))
    assert_close(Forward(folder).logits(PROMPT), expected)


@pytest.mark.parametrize("place", ["", "language_model.", "model.language_model."])
def test_an_untied_head_of_a_vision_model_is_used(place: str, tmp_path: Path) -> None:
    tensors, expected = written(TABLE["untied"], tmp_path / "own")
    head = tensors.pop("lm_head.weight")
    everything = {**vl(tensors), f"{place}lm_head.weight": head}
    config = {**vl_config(TABLE["untied"]), "tie_word_embeddings": False}
    folder = write_files(tmp_path / "vl", config, everything)
    assert_close(Forward(folder).logits(PROMPT), expected)


def test_a_head_beside_tied_embeddings_is_dropped(tmp_path: Path) -> None:
    tensors, expected = written(TABLE["tied"], tmp_path / "own")
    spare = {**hugging_face(tensors), "lm_head.weight": mx.ones((288, 64))}
    folder = write_files(tmp_path / "other", TABLE["tied"].config, spare)
    assert_close(Forward(folder).logits(PROMPT), expected)


@pytest.mark.parametrize(
    "keys",
    [
        {"intermediate_size": 64, "block_ff_dim": 64},
        {"intermediate_size": 64, "block_ff_dim": 96, "block_auto_adjust_ff_dim": False},
        {"intermediate_size": 8192, "block_ff_dim": 12288},
    ],
)
def test_the_file_says_how_wide_an_mlp_is(keys: dict[str, Any], tmp_path: Path) -> None:
    tensors, expected = written(TABLE["tied"], tmp_path / "own")
    config = {**TABLE["tied"].config, **keys}
    folder = write_files(tmp_path / "other", config, hugging_face(tensors))
    assert_close(Forward(folder).logits(PROMPT), expected)


def test_a_tensor_too_many_is_named(tmp_path: Path) -> None:
    tensors, _ = written(TABLE["tied"], tmp_path / "own")
    extra = {**hugging_face(tensors), "model.layers.0.conv.gate.weight": mx.ones((4,))}
    folder = write_files(tmp_path / "other", TABLE["tied"].config, extra)
    with pytest.raises(CheckpointError, match=r"layers\.0\.conv\.gate"):
        Forward(folder)
