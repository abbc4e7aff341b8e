"""Writes a checkpoint folder: config, tensors, tokenizer, chat template, generation defaults."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from phyla.testing.tokenizer import MARKS, token_id, tokenizer_json, vocabulary_size

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import mlx.core as mx

CHATML = (
    "{% for message in messages %}"
    "<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_files(
    folder: Path,
    config: Mapping[str, Any],
    tensors: Mapping[str, mx.array],
    *,
    chat_template: str | None = CHATML,
    generation_config: Mapping[str, Any] | None = None,
    marks: Sequence[str] = MARKS,
    special_marks: bool = False,
) -> Path:
    """Write a complete checkpoint and return its folder, which is made if it is not there.

    config.json is the given one; when it says nothing of it, a turn ends with `<|endoftext|>` by
    config.json and with that or `<|im_end|>` by generation_config.json, as published files do.

    Args:
        folder: where to.
        config: the content of config.json.
        tensors: by the names that the file shall use.
        chat_template: written to tokenizer_config.json; None for a model without one.
        generation_config: the content of generation_config.json.
        marks: texts that the tokenizer has a token for, instead of `<think>`, `<tool_call>` and
            what closes them.
        special_marks: whether those are special tokens.

    Raises:
        ValueError: the config's vocabulary is too small for the byte tokenizer.
    """
    import mlx.core as mx

    least = vocabulary_size(marks)
    vocabulary = config.get("vocab_size")
    if not isinstance(vocabulary, int) or vocabulary < least:
        raise ValueError(f"vocab_size should be at least {least}, found {vocabulary!r}")
    end, turn = token_id("<|endoftext|>"), token_id("<|im_end|>")
    tokenizer_config: dict[str, Any] = {"eos_token": "<|im_end|>", "pad_token": "<pad>"}
    if chat_template is not None:
        tokenizer_config["chat_template"] = chat_template
    if generation_config is None:
        generation_config = {"eos_token_id": [turn, end]}
    folder.mkdir(parents=True, exist_ok=True)
    _write_json(folder / "config.json", {"eos_token_id": end, **config})
    _write_json(folder / "generation_config.json", generation_config)
    _write_json(folder / "tokenizer_config.json", tokenizer_config)
    tokenizer = tokenizer_json(marks, special_marks=special_marks)
    (folder / "tokenizer.json").write_text(tokenizer, encoding="utf-8")
    path = folder / "model.safetensors"
    mx.save_safetensors(str(path), dict(tensors), metadata={"format": "pt"})
    return folder


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8")
