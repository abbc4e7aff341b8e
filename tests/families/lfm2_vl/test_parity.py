from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from phyla.testing import Forward, assert_close, read_tiny, write_checkpoint
from phyla.testing.parity import PROMPT, Parity, pairs

pytestmark = [pytest.mark.parity, pytest.mark.usefixtures("one_torch_thread")]

TABLE = read_tiny(Path(__file__).with_name("tiny.json"))

pair = pairs(TABLE)


class TestParity(Parity):
    pass


@pytest.mark.parametrize("name", ["tied", "experts"])
def test_a_quantized_checkpoint_equals_mlx_lm(name: str, tmp_path: Path) -> None:
    from mlx_lm.utils import load_model

    sparse = name == "experts"
    # What mlx-lm's reader wants and a config of transformers 5 has not.
    wanted = {"block_dim": 64, "num_heads": 4, "block_mlp_init_scale": 1.0, "block_norm_eps": 1e-5,
              "block_out_init_scale": 1.0, "block_use_swiglu": True, "block_use_xavier_init": True,
              "conv_dim": 64, "conv_dim_out": 64, "conv_use_xavier_init": True,
              "use_pos_enc": True, "block_ff_dim": 96}  # fmt: skip
    router = "model.layers.1.feed_forward.gate"
    folder = write_checkpoint(
        tmp_path,
        {**TABLE[name].config, **({} if sparse else wanted)},
        quantize={"group_size": 32, "bits": 4, router: {"group_size": 32, "bits": 8}},
        rename=published if sparse else published_dense,
    )
    peer, _ = load_model(folder)
    expected = np.array(peer(mx.array([PROMPT]))[0])
    assert_close(Forward(folder, dtype="stored").logits(PROMPT), expected)
    assert_close(Forward(folder, dtype="float32").logits(PROMPT), expected)


def published(name: str) -> str:
    """The name of a parameter in an MLX conversion."""
    for ours, theirs in (
        (".self_attn.o_proj", ".self_attn.out_proj"),
        (".q_norm", ".q_layernorm"),
        (".k_norm", ".k_layernorm"),
        (".gate.proj", ".gate"),
        (".gate.expert_bias", ".expert_bias"),
    ):
        name = name.replace(ours, theirs)
    return "model.embedding_norm.weight" if name == "norm.weight" else f"model.{name}"


def published_dense(name: str) -> str:
    """The same in one without experts, which keeps the names of an MLP's parts."""
    for ours, theirs in ((".gate_proj", ".w1"), (".up_proj", ".w3"), (".down_proj", ".w2")):
        name = name.replace(ours, theirs)
    return published(name)
