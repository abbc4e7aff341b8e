"""The ids that end a turn are everything that the checkpoint's files and the family say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import models

from phyla.checkpoint import Checkpoint, TokenizerData
from phyla.engine.eos import eos_ids
from phyla.engine.tokenizer import Tokenizer
from phyla.errors import CheckpointError

VOCABULARY = {"<|endoftext|>": 0, "<|im_end|>": 1, "<turn|>": 2, "word": 3}


def ids(
    config: dict[str, Any] | None = None,
    generation: dict[str, Any] | None = None,
    eos_token: str | None = None,
    extra: tuple[str, ...] = (),
) -> set[int]:
    data = TokenizerData(
        json=tokenizers.Tokenizer(models.WordLevel(VOCABULARY, unk_token="word")).to_str(),
        special_tokens={} if eos_token is None else {"eos_token": eos_token},
    )
    checkpoint = Checkpoint(
        path=Path("model"),
        name="model",
        format="safetensors",
        config=config or {},
        generation_config=generation or {},
        tensors={},
        tokenizer=lambda: data,
        chat_templates={},
        quantization=None,
        overrides={},
        load=dict,
    )
    return set(eos_ids(checkpoint, Tokenizer(data), extra))


def test_bug_38_a_list_in_the_generation_config_counts_whole() -> None:
    assert ids({"eos_token_id": 1}, {"eos_token_id": [1, 106]}) == {1, 106}


def test_bug_38_the_end_of_turn_token_counts_though_the_config_lists_another() -> None:
    assert ids({"eos_token_id": 0}, eos_token="<|im_end|>") == {0, 1}


def test_bug_38_every_source_adds_to_the_others() -> None:
    found = ids(
        {"eos_token_id": [10], "text_config": {"eos_token_id": 11}},
        {"eos_token_id": 12},
        "<|im_end|>",
        ("<turn|>", "<not in this vocabulary>"),
    )
    assert found == {10, 11, 12, 1, 2}


def test_sources_that_say_nothing_add_nothing() -> None:
    assert ids({"eos_token_id": None, "text_config": None}, {"eos_token_id": []}) == set()


def test_a_negative_id_stands_for_none() -> None:
    assert ids({"eos_token_id": -1}) == set()


@pytest.mark.parametrize("wrong", ["2", 2.0, True, [1, "2"], {"id": 2}])
def test_a_wrong_type_names_the_file_and_what_was_found(wrong: object) -> None:
    with pytest.raises(CheckpointError, match=r"generation_config\.json: 'eos_token_id'") as caught:
        ids({}, {"eos_token_id": wrong})
    assert caught.value.found == wrong
    assert caught.value.file == "generation_config.json"


def test_a_wrong_type_in_the_nested_config_names_the_whole_path() -> None:
    with pytest.raises(CheckpointError, match=r"text_config\.eos_token_id"):
        ids({"text_config": {"eos_token_id": "x"}})
    with pytest.raises(CheckpointError, match="should be an object"):
        ids({"text_config": [1]})
