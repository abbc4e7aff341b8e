"""What a decoder's config leaves to the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from phyla.checkpoint import Checkpoint, TensorInfo, TokenizerData
from phyla.family import DecoderConfig

KEYS: dict[str, Any] = {
    "vocab_size": 8, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1,
    "num_attention_heads": 2, "rope_theta": 10000.0,
}  # fmt: skip


def holding(*names: str) -> Checkpoint:
    return Checkpoint(
        path=Path("tiny"),
        name="tiny",
        format="safetensors",
        config=KEYS,
        generation_config={},
        tensors={name: TensorInfo(name, (8, 16), "F32", 512, "file") for name in names},
        tokenizer=lambda: TokenizerData(json=""),
        chat_templates={},
        quantization=None,
        overrides={},
        load=dict,
    )


@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize("said", [True, False, None])
def test_the_head_is_tied_as_the_config_says_and_else_as_the_file_holds_one(
    said: bool | None, held: bool
) -> None:
    checkpoint = holding("model.embed_tokens.weight", *(["lm_head.weight"] if held else []))
    config = DecoderConfig.read({**KEYS, "tie_word_embeddings": said})
    assert config.settle(checkpoint).tied is (not held if said is None else said)


@pytest.mark.parametrize("name", ["language_model.lm_head.weight", "model.lm_head.weight"])
def test_a_head_is_found_under_any_prefix(name: str) -> None:
    assert not DecoderConfig.read(KEYS).settle(holding(name)).tied
