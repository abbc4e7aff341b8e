from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from phyla.checkpoint import open_checkpoint
from phyla.errors import CheckpointError

if TYPE_CHECKING:
    from pathlib import Path


def write(folder: Path, **files: object) -> Path:
    for name, content in files.items():
        path = folder / name.replace("__", "/")
        path = path.with_name(path.name.replace("_json", ".json").replace("_jinja", ".jinja"))
        path.parent.mkdir(exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return folder


def test_the_tokenizer_is_given_with_its_config_and_special_tokens(write_folder) -> None:
    folder = write(
        write_folder(),
        tokenizer_json='{"model": "ü"}',
        tokenizer_config_json={
            "eos_token": {"content": "<end>", "lstrip": False, "__type": "AddedToken"},
            "bos_token": None,
            "pad_token": "<pad>",
            "add_bos_token": True,
            "extra_special_tokens": {"image_token": "<image>"},
            "added_tokens_decoder": {},
        },
        special_tokens_map_json={"bos_token": "<old>", "unk_token": {"content": "<unk>"}},
    )
    data = open_checkpoint(folder).tokenizer()
    assert data.json == '{"model": "ü"}'
    assert data.config["add_bos_token"] is True
    assert data.special_tokens == {
        "eos_token": "<end>",
        "pad_token": "<pad>",
        "unk_token": "<unk>",
        "image_token": "<image>",
    }


def test_an_older_tokenizer_config_is_completed_by_the_special_tokens_map(write_folder) -> None:
    folder = write(
        write_folder(),
        tokenizer_json="{}",
        tokenizer_config_json={"eos_token": None, "bos_token": "<s>"},
        special_tokens_map_json={"eos_token": "</s>"},
    )
    data = open_checkpoint(folder).tokenizer()
    assert data.special_tokens == {"eos_token": "</s>", "bos_token": "<s>"}


def test_a_folder_without_a_tokenizer_opens_and_says_so_when_asked(write_folder) -> None:
    checkpoint = open_checkpoint(write_folder())
    with pytest.raises(CheckpointError) as caught:
        checkpoint.tokenizer()
    assert caught.value.file == "tokenizer.json"


def test_a_slow_tokenizer_is_to_be_converted(write_folder) -> None:
    checkpoint = open_checkpoint(write(write_folder(), **{"tokenizer.model": "binary"}))
    with pytest.raises(CheckpointError) as caught:
        checkpoint.tokenizer()
    assert "tokenizer.model" in str(caught.value)
    assert "Convert" in str(caught.value.hint)


@pytest.mark.parametrize("text", ['{"model": {"vocab": {"a"', "<html></html>", "[1]"])
def test_a_cut_tokenizer_is_refused(write_folder, text: str) -> None:
    checkpoint = open_checkpoint(write(write_folder(), tokenizer_json=text))
    with pytest.raises(CheckpointError) as caught:
        checkpoint.tokenizer()
    assert caught.value.file == "tokenizer.json"


def test_without_a_template_there_is_none(write_folder) -> None:
    checkpoint = open_checkpoint(write_folder())
    assert checkpoint.chat_template is None
    assert checkpoint.chat_templates == {}


def test_a_template_may_be_a_text_in_the_tokenizer_config(write_folder) -> None:
    folder = write(write_folder(), tokenizer_config_json={"chat_template": "plain"})
    assert open_checkpoint(folder).chat_templates == {"default": "plain"}


def test_templates_may_be_a_named_list(write_folder) -> None:
    named = [{"name": "default", "template": "one"}, {"name": "tool_use", "template": "two"}]
    folder = write(write_folder(), tokenizer_config_json={"chat_template": named})
    assert open_checkpoint(folder).chat_templates == {"default": "one", "tool_use": "two"}


def test_a_template_may_stand_in_chat_template_json(write_folder) -> None:
    folder = write(write_folder(), chat_template_json={"chat_template": "processor's"})
    assert open_checkpoint(folder).chat_template == "processor's"
    write(folder, tokenizer_config_json={"chat_template": "tokenizer's"})
    assert open_checkpoint(folder).chat_template == "tokenizer's"


def test_template_files_win(write_folder) -> None:
    named = [{"name": "default", "template": "old"}, {"name": "rag", "template": "kept"}]
    folder = write(
        write_folder(),
        tokenizer_config_json={"chat_template": named},
        chat_template_jinja="new ☃\n",
        additional_chat_templates__tool_use_jinja="tools",
    )
    assert open_checkpoint(folder).chat_templates == {
        "default": "new ☃\n",
        "rag": "kept",
        "tool_use": "tools",
    }


@pytest.mark.parametrize("value", [3, {"default": 3}, [{"name": "default", "template": None}]])
def test_a_template_that_is_no_text_is_refused(write_folder, value: object) -> None:
    folder = write(write_folder(), tokenizer_config_json={"chat_template": value})
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(folder)
    assert (caught.value.file, caught.value.field) == ("tokenizer_config.json", "chat_template")
