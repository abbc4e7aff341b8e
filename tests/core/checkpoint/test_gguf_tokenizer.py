from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import ByteLevel

from phyla.checkpoint.gguf_header import GgufHeader
from phyla.checkpoint.gguf_tokenizer import read_tokenizer
from phyla.errors import CheckpointError

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


def header(keys: dict[str, Any]) -> GgufHeader:
    named = {f"tokenizer.ggml.{key}": value for key, value in keys.items()}
    return GgufHeader(Path("m.gguf"), named, {})


def byte_level(pre: str | None = "smollm", **more: Any) -> dict[str, Any]:
    alphabet = sorted(ByteLevel.alphabet())
    merged = ["he", "ll", "hell", "Ġhe", "12"]
    special = ["<|im_start|>", "<|im_end|>", "<think>", "[PAD9]"]
    keys: dict[str, Any] = {
        "model": "gpt2",
        "tokens": [*special, *alphabet, *merged],
        "token_type": [CONTROL, CONTROL, USER, UNUSED] + [NORMAL] * (len(alphabet) + len(merged)),
        "merges": ["h e", "l l", "he ll", "Ġ he", "1 2"],
        "bos_token_id": 0,
        "eos_token_id": 1,
    }
    return keys | ({"pre": pre} if pre else {}) | more


def sentencepiece(**more: Any) -> dict[str, Any]:
    pieces = {"▁": -9.0, "a": -9.0, "b": -9.0, "c": -9.0, "ab": -2.0, "bc": -1.0, "▁a": -3.0}
    fallback = [f"<0x{byte:02X}>" for byte in range(256)]
    special = ["<unk>", "<s>", "</s>"]
    return {
        "model": "llama",
        "tokens": [*special, *fallback, *pieces],
        "token_type": [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * len(pieces),
        "scores": [0.0] * 259 + list(pieces.values()),
        "unknown_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    } | more


def built(keys: dict[str, Any]) -> Tokenizer:
    return Tokenizer.from_str(read_tokenizer(header(keys)).json)


def tokens(tokenizer: Tokenizer, text: str, *, special: bool = False) -> list[str]:
    return tokenizer.encode(text, add_special_tokens=special).tokens


def test_merges_join_bytes_and_digits_stay_apart():
    assert tokens(built(byte_level()), "hell 12") == ["hell", "Ġ", "1", "2"]


@pytest.mark.parametrize(
    ("pre", "expected"),
    [
        ("gpt-2", ["12", "3", "4"]),
        ("smollm", ["1", "2", "3", "4"]),
        ("llama-bpe", ["12", "3", "4"]),
        ("qwen2", ["1", "2", "3", "4"]),
        ("qwen35", ["1", "2", "3", "4"]),
        ("minicpm5", ["12", "3", "4"]),
        ("default", ["12", "3", "4"]),
        (None, ["12", "3", "4"]),
    ],
)
def test_each_pre_tokenizer_cuts_numbers_its_own_way(pre, expected):
    assert tokens(built(byte_level(pre)), "1234") == expected


@pytest.mark.parametrize("pre", ["gpt-2", "smollm", "llama-bpe", "minicpm5", "default", "qwen35"])
@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_text_comes_back_from_its_ids(pre, text):
    import unicodedata

    tokenizer = built(byte_level(pre))
    # Qwen's tokenizers compose the text first.
    expected = unicodedata.normalize("NFC", text) if pre == "qwen35" else text
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == expected


def test_control_tokens_are_special_and_user_defined_ones_are_text():
    tokenizer = built(byte_level())
    ids = tokenizer.encode("<|im_start|>he<think>", add_special_tokens=False).ids
    assert tokenizer.decode(ids) == "he<think>"
    assert tokens(tokenizer, "<|im_start|>he<think>") == ["<|im_start|>", "he", "<think>"]
    assert tokenizer.token_to_id("[PAD9]") is None


def test_an_unknown_pre_tokenizer_is_named():
    with pytest.raises(CheckpointError, match="pre-tokenizer 'gpt-9'") as caught:
        read_tokenizer(header(byte_level("gpt-9")))
    assert caught.value.field == "tokenizer.ggml.pre"


@pytest.mark.parametrize(
    ("keys", "field"),
    [
        ({}, "model"),
        ({"model": "bert"}, "model"),
        ({"model": "gpt2"}, "tokens"),
        (byte_level(bos_token_id=10**6), "bos_token_id"),
        (byte_level(token_type=[1]), "token_type"),
        (sentencepiece(scores=[0.0]), "scores"),
    ],
)
def test_a_wrong_key_is_named(keys, field):
    with pytest.raises(CheckpointError) as caught:
        read_tokenizer(header(keys))
    assert caught.value.field == f"tokenizer.ggml.{field}"


def test_the_beginning_token_is_added_only_when_the_file_or_its_kind_says_so():
    assert tokens(built(byte_level()), "he", special=True) == ["he"]
    assert tokens(built(byte_level(add_bos_token=True)), "he", special=True)[0] == "<|im_start|>"
    assert tokens(built(byte_level("llama-bpe")), "he", special=True)[0] == "<|im_start|>"
    assert tokens(built(sentencepiece()), "a", special=True) == ["<s>", "▁a"]
    ends = built(sentencepiece(add_bos_token=False, add_eos_token=True))
    assert tokens(ends, "a", special=True) == ["▁a", "</s>"]


def test_the_better_scored_piece_is_merged_first():
    assert tokens(built(sentencepiece()), "abc") == ["▁a", "bc"]
    assert tokens(built(sentencepiece(add_space_prefix=False)), "abc") == ["a", "bc"]


@pytest.mark.parametrize("prefix", [True, False])
@given(text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="▁<")))
def test_bytes_stand_in_for_unknown_characters(prefix, text):
    tokenizer = built(sentencepiece(add_space_prefix=prefix))
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert 0 not in ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text


def test_special_tokens_and_flags_are_told_as_texts():
    data = read_tokenizer(header(sentencepiece()))
    expected = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    assert data.special_tokens == expected
    assert data.config == expected | {
        "add_bos_token": True,
        "add_eos_token": False,
        "clean_up_tokenization_spaces": False,
    }
    assert json.loads(data.json)["model"]["byte_fallback"] is True
