from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
import pytest

from phyla.testing import Forward, assert_close, read_tiny, write_checkpoint, write_files
from phyla.testing.parity import PROMPT, Parity, pairs
from phyla.testing.reference import Reference, write_reference_checkpoint

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = [pytest.mark.parity, pytest.mark.usefixtures("one_torch_thread")]

TABLE = read_tiny(Path(__file__).with_name("tiny.json"))

pair = pairs(TABLE)


class TestParity(Parity):
    pass


def with_slow_steps(folder: Path, config: Mapping[str, Any]) -> Path:
    """A checkpoint whose Mamba blocks step by less than `time_step_min` for most tokens."""
    write_reference_checkpoint(folder, config)
    tensors = mx.load(str(folder / "model.safetensors"))
    assert isinstance(tensors, dict)
    slow = {n: t - 9 if n.endswith("dt_bias") else t for n, t in tensors.items()}
    return write_files(folder, config, slow)


def limited(folder: Path, limits: tuple[float, float]) -> Reference:
    """transformers with these limits; it takes `time_step_min` for one, whatever the config says.

    It keeps to limits in prompts only, not in decoding, so one pass is what to compare with
    (huggingface/transformers#48989).
    """
    reference = Reference(folder)
    for module in reference._model.modules():
        if "time_step_limit" in vars(module):
            module.time_step_limit = limits
    return reference


def test_small_steps_are_not_raised_to_the_least_of_the_initialization(tmp_path: Path) -> None:
    folder = with_slow_steps(tmp_path, TABLE["dense"].config)
    forward, expected = Forward(folder), limited(folder, (0.0, math.inf)).logits(PROMPT)
    assert_close(forward.logits(PROMPT), expected)
    assert_close(forward.decoded(PROMPT, prompt=20, chunk=7), expected[19:])
    with pytest.raises(AssertionError):
        assert_close(Reference(folder).logits(PROMPT), expected)


def test_steps_keep_to_the_limits_of_the_config_in_decoding_too(tmp_path: Path) -> None:
    limits = (0.05, 0.9)
    config = {**TABLE["dense"].config, "time_step_limit": list(limits)}
    folder = with_slow_steps(tmp_path / "slow", config)
    write_reference_checkpoint(tmp_path / "usual", config)
    for each in (folder, tmp_path / "usual"):
        forward, expected = Forward(each), limited(each, limits).logits(PROMPT)
        assert_close(forward.logits(PROMPT), expected)
        assert_close(forward.decoded(PROMPT, prompt=20, chunk=7), expected[19:])


def test_groups_with_negative_scores_equal_transformers(tmp_path: Path) -> None:
    # mlx-lm 0.32 gives experts of dropped groups a score of zero, which wins here.
    config = TABLE["latent experts, in groups"].config
    write_reference_checkpoint(tmp_path, config)
    tensors = mx.load(str(tmp_path / "model.safetensors"))
    assert isinstance(tensors, dict)
    lowered = {n: t - 2 if n.endswith("correction_bias") else t for n, t in tensors.items()}
    folder = write_files(tmp_path, config, lowered)
    assert_close(Forward(folder).logits(PROMPT), Reference(folder).logits(PROMPT))


@pytest.mark.parametrize("name", ["every kind of block", "latent experts, no groups"])
def test_a_quantized_checkpoint_equals_mlx_lm(name: str, tmp_path: Path) -> None:
    from mlx_lm.utils import load_model

    config = dict(TABLE[name if name in TABLE else "latent experts, in groups"].config)
    if name not in TABLE:
        config |= {"n_group": 1, "topk_group": 1, "moe_latent_size": 32}
    up = "backbone.layers.1.mixer.switch_mlp.fc1"
    gates = {f"backbone.layers.{index}.mixer.gate": False for index in range(8)}
    folder = write_checkpoint(
        tmp_path,
        config,
        quantize={"group_size": 32, "bits": 4, up: {"group_size": 32, "bits": 8}, **gates},
        rename=published,
    )
    peer, _ = load_model(folder)
    expected = np.array(peer(mx.array([PROMPT]))[0])
    assert_close(Forward(folder, dtype="stored").logits(PROMPT), expected)
    assert_close(Forward(folder, dtype="float32").logits(PROMPT), expected)


def published(name: str) -> str:
    """The name of a parameter in an MLX conversion."""
    for ours, theirs in (
        (".switch_mlp.up_proj", ".switch_mlp.fc1"),
        (".switch_mlp.down_proj", ".switch_mlp.fc2"),
        (".gate.proj", ".gate"),
        (".gate.expert_bias", ".gate.e_score_correction_bias"),
    ):
        name = name.replace(ours, theirs)
    return name if name.startswith("lm_head") else f"backbone.{name}"
