"""Every layout that Nemotron-H's tensors are published in gives the same model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten

from phyla.errors import CheckpointError
from phyla.testing import Forward, assert_close, prompt_ids, read_tiny, write_files

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from phyla.testing import Tiny

TABLE = read_tiny(Path(__file__).with_name("tiny.json"))
EXPERTS = "latent experts, in groups"
PROMPT = prompt_ids(20)
STACKED = re.compile(r"(.*)\.switch_mlp\.(up|down)_proj\.weight")
Tensors = dict[str, mx.array]


def gates_upstream(tensors: Mapping[str, mx.array]) -> Tensors:
    return {
        name.replace("gate.proj", "gate").replace("expert_bias", "e_score_correction_bias"): each
        for name, each in tensors.items()
    }


def prefixed(tensors: Mapping[str, mx.array], prefix: str) -> Tensors:
    return {n if n.startswith("lm_head") else prefix + n: t for n, t in tensors.items()}


def kernels_upstream(tensors: Mapping[str, mx.array]) -> Tensors:
    """`[C, K, 1]` as `[C, 1, K]`."""
    return {
        name: tensor.swapaxes(1, 2) if name.endswith("conv1d.weight") else tensor
        for name, tensor in tensors.items()
    }


def experts_under(tensors: Mapping[str, mx.array], rename: Callable[[str, str], str]) -> Tensors:
    """Stacked experts under other names."""
    renamed: Tensors = {}
    for name, tensor in tensors.items():
        match = STACKED.fullmatch(name)
        renamed[rename(match[1], match[2]) if match else name] = tensor
    return renamed


def one_by_one(tensors: Mapping[str, mx.array]) -> Tensors:
    single: Tensors = {}
    for name, tensor in tensors.items():
        if match := STACKED.fullmatch(name):
            for index, part in enumerate(tensor):
                single[f"{match[1]}.experts.{index}.{match[2]}_proj.weight"] = part
        else:
            single[name] = tensor
    return single


def hugging_face(tensors: Mapping[str, mx.array]) -> Tensors:
    return prefixed(one_by_one(kernels_upstream(gates_upstream(tensors))), "backbone.")


def transformers_5_in_memory(tensors: Mapping[str, mx.array]) -> Tensors:
    named = kernels_upstream(gates_upstream(tensors))
    return prefixed(
        experts_under(named, lambda stem, part: f"{stem}.experts.{part}_proj"), "model."
    )


def mlx_conversion(tensors: Mapping[str, mx.array]) -> Tensors:
    parts = {"up": "fc1", "down": "fc2"}
    named = gates_upstream(tensors)
    return prefixed(
        experts_under(named, lambda stem, part: f"{stem}.switch_mlp.{parts[part]}.weight"),
        "backbone.",
    )


def with_a_head_for_several_tokens(tensors: Mapping[str, mx.array]) -> Tensors:
    extra = ("mtp.layers.0.norm.weight", "mtp.layers.0.mixer.q_proj.weight", "mtp.eh_proj.weight")
    return {**hugging_face(tensors), **{name: mx.zeros((4,)) for name in extra}}


def written(tiny: Tiny, folder: Path) -> tuple[Tensors, NDArray[np.float32]]:
    """A checkpoint's tensors under the model's own names, and the logits they give."""
    tiny.write(folder)
    tensors = mx.load(str(folder / "model.safetensors"))
    assert isinstance(tensors, dict)
    return tensors, Forward(folder).logits(PROMPT)


@pytest.mark.parametrize("name", ["every kind of block", EXPERTS, "dense, in words, biased"])
@pytest.mark.parametrize(
    "layout",
    [
        hugging_face,
        transformers_5_in_memory,
        mlx_conversion,
        with_a_head_for_several_tokens,
    ],
)
def test_every_layout_gives_the_same(
    name: str, layout: Callable[[Mapping[str, mx.array]], Tensors], tmp_path: Path
) -> None:
    tensors, expected = written(TABLE[name], tmp_path / "own")
    folder = write_files(tmp_path / "other", TABLE[name].config, layout(tensors))
    assert_close(Forward(folder).logits(PROMPT), expected)


@pytest.mark.parametrize("model_type", ["NemotronH_Nano_VL_V2", "nemotron_h_omni"])
def test_the_text_part_of_a_larger_model_loads(model_type: str, tmp_path: Path) -> None:
    tensors, expected = written(TABLE[EXPERTS], tmp_path / "own")
    everything = {f"language_model.{n}": t for n, t in hugging_face(tensors).items()}
    for name in (
        "vision_model.radio_model.model.blocks.0.attn.qkv.weight",
        "mlp1.0.weight",
        "vision_projector.vision_final_layernorm.weight",
        "sound_encoder.encoder.layers.0.norm_out.weight",
        "sound_projection.linear1.weight",
        "language_model.mtp.layers.0.norm.weight",
    ):
        everything[name] = mx.zeros((4,))
    config = {"model_type": model_type, "vocab_size": 288, "llm_config": TABLE[EXPERTS].config}
    folder = write_files(tmp_path / "omni", config, everything)
    assert_close(Forward(folder).logits(PROMPT), expected)


def test_the_file_says_which_biases_there_are(tmp_path: Path) -> None:
    tensors, expected = written(TABLE["dense, in words, biased"], tmp_path / "own")
    silent = {**TABLE["dense, in words, biased"].config, "mlp_bias": False, "use_bias": False}
    silent |= {"mamba_proj_bias": False, "use_conv_bias": False, "attention_bias": True}
    folder = write_files(tmp_path / "other", silent, hugging_face(tensors))
    assert_close(Forward(folder).logits(PROMPT), expected)


def test_a_head_in_the_file_is_used_although_the_config_says_tied(tmp_path: Path) -> None:
    tensors, expected = written(TABLE["dense"], tmp_path / "own")
    config = {**TABLE["dense"].config, "tie_word_embeddings": True}
    folder = write_files(tmp_path / "other", config, hugging_face(tensors))
    assert_close(Forward(folder).logits(PROMPT), expected)


def test_a_head_that_the_config_speaks_of_is_missed(tmp_path: Path) -> None:
    tensors, _ = written(TABLE["dense"], tmp_path / "own")
    headless = {n: t for n, t in hugging_face(tensors).items() if n != "lm_head.weight"}
    config = {**TABLE["dense"].config, "tie_word_embeddings": False}
    with pytest.raises(CheckpointError, match=r"lm_head\.weight"):
        Forward(write_files(tmp_path / "other", config, headless))
    del config["tie_word_embeddings"]
    Forward(write_files(tmp_path / "silent", config, headless))


def test_routers_stay_in_float32_in_16_bits(tmp_path: Path) -> None:
    tensors, _ = written(TABLE[EXPERTS], tmp_path)
    parameters = dict(tree_flatten(Forward(tmp_path, dtype="bfloat16").model.parameters()))
    routers = [name for name in tensors if ".gate." in name]
    assert {name.rpartition(".gate.")[2] for name in routers} == {"proj.weight", "expert_bias"}
    for name in routers:
        assert parameters[name].dtype == mx.float32
        assert mx.array_equal(parameters[name], tensors[name])


def test_blocks_of_puzzle_with_numbers_of_their_own_load(tmp_path: Path) -> None:
    config = dict(TABLE[EXPERTS].config)
    del config["hybrid_override_pattern"]
    config["model_type"] = "nemotron_h_puzzle"
    config["block_configs"] = [
        {"block_type": "mamba"},
        {"block_type": "moe", "moe_intermediate_size": 16, "num_experts_per_tok": 1},
        {"block_type": "attention"},
        {"block_type": "moe", "moe_intermediate_size": 32, "num_experts_per_tok": 4},
    ]
    tiny = type(TABLE[EXPERTS])("puzzle", config)
    tensors, expected = written(tiny, tmp_path / "own")
    assert tensors["layers.1.mixer.switch_mlp.up_proj.weight"].shape == (8, 16, 24)
    assert tensors["layers.3.mixer.switch_mlp.up_proj.weight"].shape == (8, 32, 24)
    folder = write_files(tmp_path / "other", config, hugging_face(tensors))
    assert_close(Forward(folder).logits(PROMPT), expected)
    assert_close(Forward(folder).logits(PROMPT, chunk=3), expected)


def test_weights_packed_by_modelopt_are_refused(tmp_path: Path) -> None:
    tensors, _ = written(TABLE["dense"], tmp_path / "own")
    packed = {**hugging_face(tensors), "backbone.layers.1.mixer.up_proj.weight_scale": mx.ones(())}
    folder = write_files(tmp_path / "other", TABLE["dense"].config, packed)
    with pytest.raises(CheckpointError, match="ModelOpt"):
        Forward(folder)
