"""A byte tokenizer: every text has ids, and a vocabulary of 264 holds them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# One token per byte, then these, then the marks, then `<pad>`.
BYTE_TOKENS = 256
_TURNS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MARKS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
SPECIAL_TOKENS = (*_TURNS, *MARKS, "<pad>")


def token_id(text: str) -> int:
    """The id of one of `SPECIAL_TOKENS`."""
    return BYTE_TOKENS + SPECIAL_TOKENS.index(text)


def vocabulary_size(marks: Sequence[str] = MARKS) -> int:
    """How many ids the tokenizer with these marks has."""
    return BYTE_TOKENS + len(_TURNS) + len(marks) + 1


def tokenizer_json(marks: Sequence[str] = MARKS, *, special_marks: bool = False) -> str:
    """tokenizer.json: id b is the byte b, in the byte-level alphabet of GPT-2.

    Args:
        marks: texts that are one token each, for what a model marks its words with.
        special_marks: whether those are special tokens, which decoding leaves out.
    """
    added = [
        {
            "id": BYTE_TOKENS + number,
            "content": text,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": special_marks or text not in marks,
        }
        for number, text in enumerate((*_TURNS, *marks, "<pad>"))
    ]
    byte_level = {"add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return json.dumps(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": added,
            "normalizer": None,
            "pre_tokenizer": {"type": "ByteLevel", **byte_level},
            "post_processor": None,
            "decoder": {"type": "ByteLevel", **byte_level},
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": None,
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": False,
                "byte_fallback": False,
                "ignore_merges": False,
                "vocab": {letter: byte for byte, letter in enumerate(_alphabet())},
                "merges": [],
            },
        }
    )


def _alphabet() -> list[str]:
    """The printable letter that stands for each byte: itself, or the next one from U+0100 on."""
    letters: list[str] = []
    moved = 0
    for byte in range(256):
        if 33 <= byte <= 126 or 161 <= byte <= 172 or 174 <= byte <= 255:
            letters.append(chr(byte))
        else:
            letters.append(chr(256 + moved))
            moved += 1
    return letters
