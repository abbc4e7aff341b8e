"""Reads a folder's tokenizer and chat templates. Builds neither."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from phyla.checkpoint.checkpoint import TokenizerData
from phyla.checkpoint.files import (
    download_again,
    read_json_if_present,
    read_json_value,
    read_text,
)
from phyla.errors import CheckpointError

if TYPE_CHECKING:
    from pathlib import Path

# What a tokenizer may come as when there is no tokenizer.json.
_SLOW_TOKENIZERS = ("tokenizer.model", "spiece.model", "vocab.json", "vocab.txt", "*.tiktoken")


def read_tokenizer(folder: Path) -> TokenizerData:
    """Read tokenizer.json and what belongs to it.

    Raises:
        CheckpointError: there is no tokenizer.json, or a file is broken.
    """
    path = folder / "tokenizer.json"
    if not (path.is_file() or path.is_symlink()):
        slow = [file.name for pattern in _SLOW_TOKENIZERS for file in folder.glob(pattern)]
        found = f"only {', '.join(slow)}" if slow else "no tokenizer"
        raise CheckpointError(
            f"The folder {folder} has no tokenizer.json: found {found}.",
            file="tokenizer.json",
            found=found,
            expected="tokenizer.json",
            hint="Convert the slow tokenizer (transformers: AutoTokenizer.from_pretrained(...)"
            ".save_pretrained(...) writes one) and put tokenizer.json into the folder."
            if slow
            else "Download tokenizer.json into the folder.",
        )
    text = read_text(path)
    # Parsing tens of megabytes twice would be felt; a cut download is seen by its last character.
    if not (text[:100].lstrip().startswith("{") and text[-100:].rstrip().endswith("}")):
        raise CheckpointError(
            f"tokenizer.json is truncated or is not JSON: it ends with {text[-20:]!r}.",
            file="tokenizer.json",
            found=text[-20:],
            expected="a whole JSON object",
            hint=download_again(path),
        )
    config = read_json_if_present(folder / "tokenizer_config.json")
    extra = read_json_if_present(folder / "special_tokens_map.json")
    return TokenizerData(json=text, config=config, special_tokens=_special_tokens(config, extra))


def _special_tokens(config: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, str]:
    # A tokenizer_config.json that lists the added tokens is complete, so that a null in it means
    # "none"; an older one is completed by special_tokens_map.json, which then wins.
    sources = (extra, config) if "added_tokens_decoder" in config else (config, extra)
    tokens: dict[str, str] = {}
    for source in sources:
        nested = (source.get("extra_special_tokens"), source.get("model_specific_special_tokens"))
        for entries in (*nested, source):
            if not isinstance(entries, Mapping):
                continue
            for name, value in entries.items():
                if not name.endswith("_token"):
                    continue
                text = value.get("content") if isinstance(value, Mapping) else value
                if isinstance(text, str):
                    tokens[name] = text
                elif text is None:
                    tokens.pop(name, None)
    return tokens


def read_chat_templates(folder: Path) -> dict[str, str]:
    """Read all chat templates by name.

    Of several sources for a name the first counts: chat_template.jinja and
    additional_chat_templates/*.jinja, tokenizer_config.json, chat_template.json.

    Raises:
        CheckpointError: a file is broken, or a template is no text.
    """
    templates: dict[str, str] = {}
    for file in ("chat_template.json", "tokenizer_config.json"):
        templates.update(_templates_in(folder / file))
    for path in sorted(folder.glob("additional_chat_templates/*.jinja")):
        templates[path.stem] = read_text(path)
    path = folder / "chat_template.jinja"
    if path.is_file() or path.is_symlink():
        templates["default"] = read_text(path)
    return templates


def _templates_in(path: Path) -> dict[str, str]:
    if not (path.is_file() or path.is_symlink()):
        return {}
    content = read_json_value(path)
    value = content.get("chat_template") if isinstance(content, Mapping) else content
    if value is None:
        return {}
    if isinstance(value, str):
        return {"default": value}
    if isinstance(value, list):
        value = {
            entry["name"]: entry["template"]
            for entry in value
            if isinstance(entry, Mapping) and {"name", "template"} <= entry.keys()
        }
    if not (isinstance(value, Mapping) and all(isinstance(text, str) for text in value.values())):
        raise CheckpointError(
            f"{path.name}: 'chat_template' should be a text, or a list of named texts.",
            file=path.name,
            found=type(value).__name__,
            expected="a text, or a list of {name, template}",
            field="chat_template",
            hint="Compare it with the published file.",
        )
    return dict(value)
