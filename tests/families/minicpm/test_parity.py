from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

from phyla.testing import Forward, Tiny, assert_close, read_tiny, write_files
from phyla.testing.parity import PROMPT, Parity, pairs, write_for_itself

pytestmark = [pytest.mark.parity, pytest.mark.usefixtures("one_torch_thread")]

TABLE = read_tiny(Path(__file__).with_name("tiny.json"))


def write_and_fold(tiny: Tiny, folder: Path) -> Path:
    """Write a MiniCPM, and beside it the Llama that computes the same."""
    if tiny.config.get("model_type") not in (None, "minicpm"):
        return write_for_itself(tiny, folder)
    from phyla.testing.reference import random_tensors, tensor_shapes, write_reference_checkpoint

    folding = runpy.run_path(str(Path(__file__).with_name("folding.py")))
    llama = folding["llama_config"](tiny.config)
    reference = folder.with_name("llama")
    write_reference_checkpoint(reference, llama)
    shapes = tensor_shapes(reference)
    if tiny.config["tie_word_embeddings"]:
        del shapes["lm_head.weight"]
    tensors = random_tensors(shapes)
    write_files(reference, llama, folding["llama_tensors"](tiny.config, tensors))
    return write_files(folder, tiny.config, tensors) and reference


pair = pairs(TABLE, write_and_fold)


class TestParity(Parity):
    pass


def test_the_rotary_keys_of_transformers_5_give_the_same(tmp_path: Path) -> None:
    tiny = TABLE["longrope below"]
    first = Forward(tiny.write(tmp_path / "first")).logits(PROMPT)
    config = dict(tiny.config)
    config["rope_parameters"] = {**config.pop("rope_scaling"), "rope_theta": 10000.0}
    again = Forward(Tiny("again", config).write(tmp_path / "again")).logits(PROMPT)
    assert_close(again, first)


def test_longrope_keeps_to_the_list_that_the_planned_length_asks_for(tmp_path: Path) -> None:
    tiny = TABLE["longrope below"]
    forward = Forward(tiny.write(tmp_path))
    below, above = forward.logits(PROMPT, extent=256), forward.logits(PROMPT, extent=257)
    assert_close(below, forward.logits(PROMPT))
    assert_close(above, forward.logits(PROMPT, chunk=7, extent=257))
    with pytest.raises(AssertionError):
        assert_close(above, below)


def test_an_untied_model_equals_mlx_lm(tmp_path: Path) -> None:
    import mlx.core as mx
    import numpy as np
    from mlx_lm.utils import load_model

    folder = TABLE["untied"].write(tmp_path)
    peer = tmp_path / "peer"
    peer.mkdir()
    config = json.loads((folder / "config.json").read_text())
    (peer / "config.json").write_text(json.dumps(config))
    tensors = mx.load(str(folder / "model.safetensors"))
    assert isinstance(tensors, dict)
    mx.save_safetensors(
        str(peer / "model.safetensors"),
        {name if name.startswith("lm_head") else f"model.{name}": t for name, t in tensors.items()},
    )
    model, _ = load_model(peer)
    assert_close(Forward(folder).logits(PROMPT), np.array(model(mx.array([PROMPT]))[0]))
