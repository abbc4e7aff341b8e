"""A published model against mlx-lm, on the same float32 weights.

Runs where the demo model is: in Phyla's cache folder (`phyla pull demo`), or where the environment
variable PHYLA_TEST_DEMO says.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten

import phyla
from phyla.checkpoint import open_checkpoint
from phyla.checkpoint.demo import fetch_demo
from phyla.engine import loading
from phyla.engine.weights import load_weights
from phyla.registry import discover

pytestmark = pytest.mark.parity

TOKENS = 64
KEYS = (
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "head_dim", "rms_norm_eps", "vocab_size", "max_position_embeddings",
)  # fmt: skip


@pytest.fixture(scope="module")
def demo() -> Path:
    named = os.environ.get("PHYLA_TEST_DEMO")
    if named:
        return Path(named)
    try:
        return fetch_demo(offline=True)
    except phyla.CheckpointError:
        pytest.skip("the demo model is not on this machine")


@pytest.fixture(scope="module")
def peer(demo: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's weights, as Phyla unpacks them, in a folder that mlx-lm reads."""
    folder = tmp_path_factory.mktemp("peer")
    checkpoint = open_checkpoint(demo)
    family = discover().family_for(checkpoint)
    plan = loading.plan(checkpoint, family, dtype="float32")
    values = plan.config.model_dump()
    config = {"model_type": "llama", "tie_word_embeddings": values["tie_word_embeddings"]}
    config.update({key: values[key] for key in KEYS})
    config["rope_theta"] = values["rope"]["theta"]
    (folder / "config.json").write_text(json.dumps(config))
    # Not `loading.build`: that joins projections, which mlx-lm has apart.
    model = family.model(plan.config)
    load_weights(model, checkpoint, family.weights(plan.config, checkpoint), plan.precision)
    parameters: dict[str, mx.array] = dict(tree_flatten(model.parameters()))
    tensors = {
        name if name.startswith("lm_head") else f"model.{name}": value
        for name, value in parameters.items()
    }
    mx.save_safetensors(str(folder / "model.safetensors"), tensors)
    return folder


def test_greedy_tokens_equal_mlx_lms(demo: Path, peer: Path) -> None:
    from mlx_lm.generate import generate_step
    from mlx_lm.utils import load_model

    with phyla.load(demo, dtype="float32") as engine:
        prompt = engine.encode("Write a short story about a lighthouse.")
        reply = engine.generate(
            prompt, options={"temperature": 0, "max_tokens": TOKENS, "ignore_eos": True}
        )
    model, _ = load_model(peer)
    expected = [
        int(token) for token, _ in generate_step(mx.array(prompt.ids), model, max_tokens=TOKENS)
    ]
    assert list(reply.tokens) == expected
