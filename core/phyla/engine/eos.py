"""Which token ids end a turn: everything that a checkpoint and its family say, together.

No single file can be trusted: config.json may list only `<|endoftext|>` while turns end with
`<|im_end|>`, and generation_config.json may hold one id, a list, or nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from phyla.errors import CheckpointError

if TYPE_CHECKING:
    from phyla.checkpoint import Checkpoint
    from phyla.engine.tokenizer import Tokenizer

_KEY = "eos_token_id"


def eos_ids(
    checkpoint: Checkpoint, tokenizer: Tokenizer, extra: Sequence[str] = ()
) -> frozenset[int]:
    """The ids that end a turn.

    The union of `eos_token_id` in config.json, in its `text_config` and in generation_config.json,
    of the tokenizer's `eos_token`, and of `extra`, the family's own by text. Texts that the
    vocabulary lacks are left out, and so are negative ids, which old conversions write for "none".

    Raises:
        CheckpointError: an `eos_token_id` is no integer, list of integers or null.
    """
    config, generation = checkpoint.config, checkpoint.generation_config
    texts = [*extra, tokenizer.special_tokens.get("eos_token", "")]
    return frozenset(
        [
            *_listed(config, "config.json", _KEY),
            *_listed(_text_config(config), "config.json", f"text_config.{_KEY}"),
            *_listed(generation, "generation_config.json", _KEY),
            *(index for index in map(tokenizer.token_id, texts) if index is not None),
        ]
    )


def _text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    nested = config.get("text_config")
    if nested is None:
        return {}
    if not isinstance(nested, Mapping):
        raise CheckpointError(
            f"config.json: 'text_config' should be an object, found {nested!r}.",
            file="config.json",
            found=nested,
            expected="an object",
            field="text_config",
            hint="Compare config.json with the published one.",
        )
    return nested


def _listed(config: Mapping[str, Any], file: str, field: str) -> Iterable[int]:
    value = config.get(_KEY)
    ids = value if isinstance(value, list | tuple) else [] if value is None else [value]
    if not all(isinstance(index, int) and not isinstance(index, bool) for index in ids):
        raise CheckpointError(
            f"{file}: {field!r} should be a token id or a list of them, found {value!r}.",
            file=file,
            found=value,
            expected="an integer or a list of integers",
            field=field,
            hint=f"Compare {file} with the published one.",
        )
    return [index for index in ids if index >= 0]
