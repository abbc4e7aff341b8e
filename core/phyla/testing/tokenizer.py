"""A byte tokenizer: every text has ids, and a vocabulary of 264 holds them."""

from __future__ import annotations

import json

# One token per byte, then these.
BYTE_TOKENS = 256
SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<pad>",
)
# Tokens that a reader of the answer is meant to see.
_SHOWN = ("<think>", "</think>", "<tool_call>", "</tool_call>")


def token_id(text: str) -> int:
    """The id of one of `SPECIAL_TOKENS`."""
    return BYTE_TOKENS + SPECIAL_TOKENS.index(text)


def tokenizer_json() -> str:
    """tokenizer.json: id b is the byte b, in the byte-level alphabet of GPT-2."""
    added = [
        {
            "id": token_id(text),
            "content": text,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": text not in _SHOWN,
        }
        for text in SPECIAL_TOKENS
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
