"""The tokenizer follows tokenizer.json, and neither ids nor texts of any kind break it."""

from __future__ import annotations

import json

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors, trainers

from phyla.checkpoint import TokenizerData
from phyla.engine.tokenizer import Tokenizer
from phyla.errors import CheckpointError, RequestError


def byte_level_json() -> str:
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(["the cat sat on the mat", "and the dog ran"] * 3, trainer)
    backend.add_special_tokens(["<bos>", "<|im_end|>"])
    backend.add_tokens([AddedToken("<think>", special=False, normalized=False)])
    bos = backend.token_to_id("<bos>")
    backend.post_processor = processors.TemplateProcessing(
        single="<bos> $A", special_tokens=[("<bos>", bos)]
    )
    backend.enable_truncation(max_length=8)
    backend.enable_padding(length=8)
    return backend.to_str()


JSON = byte_level_json()
TOKENIZER = Tokenizer(
    TokenizerData(
        json=JSON, special_tokens={"bos_token": "<bos>", "eos_token": "<|im_end|>", "x": "y"}
    )
)


@given(st.text())
def test_decoding_what_was_encoded_gives_the_text(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text, add_special_tokens=False)) == text


def test_a_prompt_is_neither_truncated_nor_padded_by_limits_in_the_file() -> None:
    assert len(TOKENIZER.encode("zq" * 50, add_special_tokens=False)) == 100
    assert len(TOKENIZER.encode("z", add_special_tokens=False)) == 1


def test_special_tokens_are_added_only_when_asked_for() -> None:
    plain = TOKENIZER.encode("cat", add_special_tokens=False)
    assert TOKENIZER.encode("cat", add_special_tokens=True) == [TOKENIZER.bos_id, *plain]


def test_text_that_spells_an_added_token_becomes_that_token() -> None:
    ids = TOKENIZER.encode("<think><|im_end|>", add_special_tokens=False)
    assert ids == [TOKENIZER.token_id("<think>"), TOKENIZER.eos_id]


def test_decoded_text_skips_special_tokens_and_keeps_other_added_tokens() -> None:
    ids = TOKENIZER.encode("<bos>a<think>b<|im_end|>", add_special_tokens=False)
    assert TOKENIZER.decode(ids) == "a<think>b"
    assert TOKENIZER.decode(ids, keep_special=True) == "<bos>a<think>b<|im_end|>"


def test_ids_outside_the_vocabulary_stand_for_no_text() -> None:
    outside = [TOKENIZER.vocab_size, 10**6, 2**32, 2**70, -1]
    assert TOKENIZER.decode(outside) == ""
    assert [TOKENIZER.spelling(index) for index in outside] == [None] * len(outside)
    assert [TOKENIZER.token_text(index) for index in outside] == [""] * len(outside)


def test_a_token_is_found_by_its_spelling_and_the_other_way_round() -> None:
    for index in range(TOKENIZER.vocab_size):
        text = TOKENIZER.spelling(index)
        assert text is not None
        assert TOKENIZER.token_id(text) == index
    assert TOKENIZER.token_id("no such token") is None


def test_a_token_reads_as_inside_a_text_whatever_the_decoder_does_to_the_first() -> None:
    (space, *_) = TOKENIZER.encode(" the", add_special_tokens=False)
    assert TOKENIZER.token_text(space).startswith(" ")
    assert TOKENIZER.token_text(TOKENIZER.eos_id or 0) == "<|im_end|>"
    backend = tokenizers.Tokenizer(models.WordLevel({"a": 0, "▁the": 1}, unk_token="a"))
    backend.decoder = decoders.Metaspace()  # pyright: ignore[reportAttributeAccessIssue]
    stripping = Tokenizer(TokenizerData(json=backend.to_str()))
    assert (stripping.decode([1]), stripping.token_text(1)) == ("the", " the")


def test_the_special_ids_are_those_of_the_special_tokens() -> None:
    assert TOKENIZER.special_ids == {TOKENIZER.bos_id, TOKENIZER.eos_id}
    assert TOKENIZER.special_tokens["x"] == "y"


def test_a_named_control_token_is_special_though_the_file_lists_it_as_vocabulary() -> None:
    content = json.loads(JSON)
    for token in content["added_tokens"]:
        token["special"] = False
    data = TokenizerData(json=json.dumps(content), special_tokens={"eos_token": "<|im_end|>"})
    tokenizer = Tokenizer(data)
    assert tokenizer.special_ids == {tokenizer.token_id("<|im_end|>")}
    assert tokenizer.vocab_size == TOKENIZER.vocab_size


def test_a_named_token_that_the_vocabulary_lacks_is_not_added() -> None:
    tokenizer = Tokenizer(TokenizerData(json=JSON, special_tokens={"eos_token": "<nowhere>"}))
    assert tokenizer.eos_id is None
    assert tokenizer.vocab_size == TOKENIZER.vocab_size


def test_clean_up_in_the_tokenizer_config_deletes_no_space() -> None:
    tokenizer = Tokenizer(TokenizerData(json=JSON, config={"clean_up_tokenization_spaces": True}))
    assert (
        tokenizer.decode(tokenizer.encode("x . y , 's", add_special_tokens=False)) == "x . y , 's"
    )


@pytest.mark.parametrize("text", ["", "{", "[]", '{"model": {"type": "Unheard"}}', "version https"])
def test_an_unreadable_file_is_the_checkpoints_fault(text: str) -> None:
    with pytest.raises(CheckpointError, match=r"tokenizer\.json cannot be read") as caught:
        Tokenizer(TokenizerData(json=text))
    assert caught.value.file == "tokenizer.json"
    assert caught.value.hint


def test_half_a_surrogate_pair_is_the_requests_fault() -> None:
    with pytest.raises(RequestError, match=r"'\\ud83d' at position 1") as caught:
        TOKENIZER.encode("a\ud83d", add_special_tokens=True)
    assert caught.value.field == "text"


def test_ids_that_the_vocabulary_leaves_out_cut_off_no_token() -> None:
    backend = tokenizers.Tokenizer(models.WordLevel({"a": 0, "b": 5, "<end>": 9}, unk_token="a"))
    tokenizer = Tokenizer(
        TokenizerData(json=backend.to_str(), special_tokens={"eos_token": "<end>"})
    )
    assert tokenizer.vocab_size == 10
    assert tokenizer.eos_id == 9
    assert tokenizer.decode([3, 5, 7]) == "b"
    assert (tokenizer.token_text(3), tokenizer.spelling(3)) == ("", None)
    assert (tokenizer.decode([9]), tokenizer.decode([9], keep_special=True)) == ("", "<end>")
