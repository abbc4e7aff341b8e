from __future__ import annotations

import re
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from phyla.testing import Forward, assert_close, read_tiny, write_checkpoint
from phyla.testing.parity import PROMPT, Parity, pairs
from phyla.testing.reference import Reference, write_reference_checkpoint

pytestmark = [pytest.mark.parity, pytest.mark.usefixtures("one_torch_thread")]

TABLE = read_tiny(Path(__file__).with_name("tiny.json"))
SHARING = "layers share keys and have embeddings"
EXPERTS = "experts, keys are values"
EXPERT = re.compile(r"(layers\.\d+\.experts)\.(gate|up|down)_proj\.weight")

pair = pairs(TABLE)


class TestParity(Parity):
    pass


@pytest.mark.parametrize("name", ["multimodal", "unified multimodal"])
def test_ids_of_soft_tokens_are_looked_up_as_the_references_do(name: str, tmp_path: Path) -> None:
    ids = [*PROMPT[:5], 290, 290, 292, 291, *PROMPT[5:9]]
    folder = write_reference_checkpoint(tmp_path, TABLE[name].config)
    assert_close(Forward(folder).logits(ids), Reference(folder).logits(ids))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", [SHARING, EXPERTS])
@pytest.mark.parametrize("held", [None, "stored"])
def test_16_bit_files_are_computed_in_float32_on_a_cpu(
    name: str, dtype: str, held: str | None, tmp_path: Path
) -> None:
    if mx.default_device() != mx.Device(mx.cpu):
        pytest.skip("a GPU computes in the file's own type")
    folder = write_reference_checkpoint(tmp_path, TABLE[name].config, dtype=dtype)
    found = Forward(folder, dtype=held).logits(PROMPT)
    assert_close(found, Reference(folder).logits(PROMPT))


@pytest.mark.parametrize("name", [SHARING, EXPERTS])
def test_a_quantized_model_equals_mlx_lm(name: str, tmp_path: Path) -> None:
    from mlx_lm.utils import load_model

    wide = {
        **TABLE[name].config, "hidden_size": 128, "intermediate_size": 128, "head_dim": 32,
        "global_head_dim": 64,
    }  # fmt: skip
    wide["hidden_size_per_layer_input"] = 64 if wide["hidden_size_per_layer_input"] else 0
    if "moe_intermediate_size" in wide:
        wide["moe_intermediate_size"] = 64
    folder = write_checkpoint(
        tmp_path,
        wide,
        quantize={
            "group_size": 64,
            "bits": 4,
            "model.embed_tokens_per_layer": {"group_size": 64, "bits": 8},
            "model.layers.0.router.proj": {"group_size": 64, "bits": 8},
        },
        rename=lambda name: "model." + EXPERT.sub(r"\1.switch_glu.\2_proj.weight", name),
    )
    peer, _ = load_model(folder)
    expected = np.array(peer(mx.array([PROMPT]))[0])
    assert_close(Forward(folder, dtype="stored").logits(PROMPT), expected)
    assert_close(Forward(folder, dtype="float32").logits(PROMPT), expected)
