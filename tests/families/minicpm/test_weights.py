"""Every layout that checkpoints of MiniCPM3 and MiniCPM-V come in fills the same model."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten

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

# The norms that lie around zero in Hugging Face files; not the gated one.
NORMS = re.compile(r"(layers\.\d+\.(input_layernorm|post_attention_layernorm|self_attn\.[qk]_norm)"
                   r"|norm)\.weight")  # fmt: skip
TOWER = ("vision_tower.embeddings.patch_embedding.weight", "merger.mlp.0.linear_1.weight",
         "vision_tower.vit_merger.linear_1.weight")  # fmt: skip
DRAFTER = ("mtp.fc.weight", "mtp.layers.0.input_layernorm.weight")


def parameters(config: dict[str, Any]) -> Tensors:
    """Random tensors as an MLX conversion has them, under the model's names."""
    seen: Any = SimpleNamespace(config=config, model_type=config["model_type"], chat_template=None)
    family = discover().family_for(seen)
    model = family.model(family.config.read(config))
    return {
        name: mx.array(random_tensor(name, parameter.shape))
        for name, parameter in dict(tree_flatten(model.parameters())).items()
    }


def upstream(tensors: Tensors) -> Tensors:
    """Kernels and norms as Hugging Face has them."""

    def turn(name: str, tensor: mx.array) -> mx.array:
        if name.endswith("linear_attn.conv1d.weight"):
            return tensor.swapaxes(1, 2)
        return tensor - 1 if NORMS.fullmatch(name) else tensor

    return {name: turn(name, tensor) for name, tensor in tensors.items()}


def under(prefix: str, tensors: Tensors, *, head: str = "") -> Tensors:
    return {
        f"{head if name.startswith('lm_head') else prefix}{name}": tensor
        for name, tensor in tensors.items()
    }


def extras(*names: str) -> Tensors:
    return {name: mx.array(random_tensor(name, (4, 4))) for name in names}


def published(tensors: Tensors) -> Tensors:
    return {
        **under("model.language_model.", upstream(tensors)),
        **under("model.", extras(*TOWER)),
        **extras(*DRAFTER),
    }


def conversion(tensors: Tensors) -> Tensors:
    return {
        **under("language_model.model.", tensors, head="language_model."),
        **extras("vit_merger.linear_1.weight", *TOWER[:2], *DRAFTER),
    }


def older(tensors: Tensors) -> Tensors:
    return {
        **under("llm.model.", upstream(tensors), head="llm."),
        **extras("vpm.embeddings.patch_embedding.weight", "resampler.proj"),
    }


def logits(folder: Path, config: dict[str, Any], tensors: Tensors) -> NDArray[np.float32]:
    return Forward(write_files(folder, config, tensors)).logits(PROMPT)


@pytest.mark.parametrize("name", ["4.6", "4.7, untied", "4.7 of experts"])
@pytest.mark.parametrize("layout", [published, conversion, older])
def test_every_layout_gives_the_same(
    name: str, layout: Callable[[Tensors], Tensors], tmp_path: Path
) -> None:
    # The tensors of a tower that config.json does not describe are left out.
    config = {k: v for k, v in TABLE[name].config.items() if k != "vision_config"}
    tensors = parameters(config)
    expected = logits(tmp_path / "plain", config, tensors)
    found = logits(tmp_path / "laid out", config, layout(tensors))
    assert_close(found, expected, tolerance=1e-5)


def test_a_file_without_a_head_is_tied_and_its_hidden_states_are_divided_all_the_same(
    tmp_path: Path,
) -> None:
    config = dict(TABLE["latent, tied"].config)
    tensors = parameters(config)
    expected = logits(tmp_path / "tied", config, tensors)
    del config["tie_word_embeddings"]
    found = logits(tmp_path / "not said", config, under("model.", tensors))
    assert_close(found, expected, tolerance=1e-6)
    # Old MLX conversions hold a copy of the embedding as the head.
    tensors["lm_head.weight"] = tensors["embed_tokens.weight"]
    assert_close(logits(tmp_path / "copy", config, tensors), expected, tolerance=1e-6)


def test_queries_may_come_without_a_latent(tmp_path: Path) -> None:
    config = {**TABLE["latent, tied"].config, "q_lora_rank": None}
    forward = Forward(write_checkpoint(tmp_path, config))
    assert_close(forward.logits(PROMPT, chunk=3), forward.logits(PROMPT))


@pytest.mark.parity
@pytest.mark.parametrize("bits", [4, 8])
def test_packed_maps_to_keys_and_values_equal_mlx_lm(bits: int, tmp_path: Path) -> None:
    from mlx_lm.utils import load_model

    # mlx-lm has one epsilon for the latents' norms (1e-5), wants a mapping as `rope_scaling`,
    # always takes the long list, and derives the values' width.
    config = {
        **TABLE["latent, longrope above"].config, "kv_lora_rank": 64, "q_lora_rank": 64,
        "qk_nope_head_dim": 32, "v_head_dim": 16, "qk_rope_head_dim": 16,
    }  # fmt: skip
    folder = write_checkpoint(
        tmp_path,
        config,
        quantize={"group_size": 32, "bits": bits},
        rename=lambda name: name if name.startswith("lm_head") else f"model.{name}",
    )
    peer, _ = load_model(folder)
    expected = np.array(peer(mx.array([PROMPT]))[0])
    for dtype in ("stored", "float32"):
        assert_close(Forward(folder, dtype=dtype).logits(PROMPT), expected)


@pytest.mark.parity
def test_packed_text_of_minicpm_v_equals_its_plain_values(tmp_path: Path) -> None:
    folder = write_checkpoint(
        tmp_path,
        TABLE["4.6"].config,
        quantize={"group_size": 32, "bits": 4, "language_model.model.embed_tokens": False},
        rename=lambda name: f"language_model.model.{name}",
    )
    unpacked, packed = (Forward(folder, dtype=each) for each in ("float32", "stored"))
    assert_close(packed.logits(PROMPT), unpacked.logits(PROMPT))


@pytest.mark.parametrize("name", ["untied", "latent, tied"])
def test_a_file_in_half_precision_computes_in_float32_where_that_is_asked_for(
    name: str, tmp_path: Path
) -> None:
    """The scaled embedding, too, which the file's own type would round."""
    config = read_tiny(Path(__file__).with_name("tiny.json"))[name].config
    folder = write_checkpoint(tmp_path / "half", config, dtype="bfloat16")
    ids = prompt_ids(20)
    whole = Forward(folder, dtype="float32").logits(ids)
    assert_close(Forward(folder, dtype="stored").logits(ids), whole)
