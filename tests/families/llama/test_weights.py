"""A Llama whose file holds no head."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import pytest

from phyla.errors import CheckpointError
from phyla.testing import Forward, assert_close, prompt_ids, read_tiny, write_files

CONFIG = read_tiny(Path(__file__).with_name("tiny.json"))["tied"]
PROMPT = prompt_ids(9)


def tensors(folder: Path) -> dict[str, mx.array]:
    found = mx.load(str(CONFIG.write(folder) / "model.safetensors"))
    assert isinstance(found, dict)
    assert "lm_head.weight" not in found
    return found


def test_without_a_word_on_it_the_head_is_the_embedding(tmp_path: Path) -> None:
    config = {k: v for k, v in CONFIG.config.items() if k != "tie_word_embeddings"}
    folder = write_files(tmp_path / "other", config, tensors(tmp_path / "own"))
    expected = Forward(tmp_path / "own").logits(PROMPT)
    assert_close(Forward(folder).logits(PROMPT), expected)


def test_a_head_that_the_config_speaks_of_is_missed(tmp_path: Path) -> None:
    config = {**CONFIG.config, "tie_word_embeddings": False}
    folder = write_files(tmp_path / "other", config, tensors(tmp_path / "own"))
    with pytest.raises(CheckpointError, match=r"lm_head\.weight.*tie_word_embeddings") as caught:
        Forward(folder)
    assert caught.value.field == "lm_head.weight"
