from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np
import pytest

from phyla.testing import Forward, assert_close, read_tiny, write_checkpoint, write_files
from phyla.testing.parity import PROMPT, Parity, pairs
from phyla.testing.reference import Reference, write_reference_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.parity, pytest.mark.usefixtures("one_torch_thread")]

TABLE = read_tiny(Path(__file__).with_name("tiny.json"))
EXPERT = re.compile(r"(.*\.mlp)\.experts\.(\d+)\.(gate|up|down)_proj\.weight")

pair = pairs(TABLE)


class TestParity(Parity):
    pass


def one_by_one(name: str, parts: dict[str, list[mx.array]]) -> dict[str, mx.array]:
    return {
        f"{name}.experts.{index}.{part}_proj.weight": tensor
        for part, tensors in parts.items()
        for index, tensor in enumerate(tensors)
    }


def fused(name: str, parts: dict[str, list[mx.array]]) -> dict[str, mx.array]:
    gate, up, down = (mx.stack(parts[part]) for part in ("gate", "up", "down"))
    return {
        f"{name}.experts.gate_up_proj": mx.concatenate([gate, up], axis=1),
        f"{name}.experts.down_proj": down,
    }


def stacked(name: str, parts: dict[str, list[mx.array]]) -> dict[str, mx.array]:
    return {f"{name}.switch_mlp.{part}_proj.weight": mx.stack(parts[part]) for part in parts}


@pytest.mark.parametrize("layout", [one_by_one, fused, stacked])
@pytest.mark.parametrize("spelling", ["num_experts", "num_local_experts"])
def test_every_layout_of_experts_gives_the_same(
    layout: Callable[..., dict[str, mx.array]], spelling: str, tmp_path: Path
) -> None:
    tiny = TABLE["experts in some layers"]
    reference = write_reference_checkpoint(tmp_path / "reference", tiny.config)
    tensors = mx.load(str(reference / "model.safetensors"))
    assert isinstance(tensors, dict)
    experts: dict[str, dict[str, list[tuple[int, mx.array]]]] = {}
    for name in list(tensors):
        if match := EXPERT.fullmatch(name):
            parts = experts.setdefault(match[1], {"gate": [], "up": [], "down": []})
            parts[match[3]].append((int(match[2]), tensors.pop(name)))
    assert len(experts) == 1
    for name, parts in experts.items():
        ordered = {
            part: [tensor for _, tensor in sorted(numbered, key=lambda pair: pair[0])]
            for part, numbered in parts.items()
        }
        tensors.update(layout(name, ordered))
    config = dict(tiny.config)
    config[spelling] = config.pop("num_experts")
    folder = write_files(tmp_path / "again", config, tensors)
    assert_close(Forward(folder).logits(PROMPT), Reference(reference).logits(PROMPT))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ["tied", "experts"])
@pytest.mark.parametrize("held", [None, "stored"])
def test_16_bit_files_are_computed_in_float32_on_a_cpu(
    name: str, dtype: str, held: str | None, tmp_path: Path
) -> None:
    if mx.default_device() != mx.Device(mx.cpu):
        pytest.skip("a GPU computes in the file's own type")
    folder = write_reference_checkpoint(tmp_path, TABLE[name].config, dtype=dtype)
    found = Forward(folder, dtype=held).logits(PROMPT)
    assert_close(found, Reference(folder).logits(PROMPT))


def test_a_quantized_mixture_equals_mlx_lm(tmp_path: Path) -> None:
    from mlx_lm.utils import load_model

    folder = write_checkpoint(
        tmp_path,
        TABLE["experts"].config,
        quantize={
            "group_size": 32,
            "bits": 4,
            "model.layers.0.mlp.gate": {"group_size": 32, "bits": 8},
        },
        rename=lambda name: name if name.startswith("lm_head") else f"model.{name}",
    )
    peer, _ = load_model(folder)
    expected = np.array(peer(mx.array([PROMPT]))[0])
    assert_close(Forward(folder, dtype="stored").logits(PROMPT), expected)
    assert_close(Forward(folder, dtype="float32").logits(PROMPT), expected)
