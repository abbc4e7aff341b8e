"""Streamed text is the decoding of all ids, byte for byte, and comes as soon as it is certain."""

from __future__ import annotations

import os
import random
from functools import cache
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, pre_tokenizers, trainers

from phyla.checkpoint import TokenizerData
from phyla.checkpoint.cache_folder import cache_folder
from phyla.engine.detokenize import Detokenizer
from phyla.engine.tokenizer import Tokenizer

TEXTS = ("the cat sat on the mat", "  two spaces,\n\n  lines", "ďábelské 社区非常活跃 私の 👩‍👩‍👧")
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def byte_spellings() -> dict[int, str]:
    """The character of each byte in the byte-level alphabet, by the library's own account."""
    splitter = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    ascii_part = {splitter.pre_tokenize_str(chr(b))[0][0]: b for b in range(0x80)}
    pairs = {}
    for code in range(0x80, 0x800):
        spelled, raw = splitter.pre_tokenize_str(chr(code))[0][0], chr(code).encode()
        pairs |= dict(zip(spelled, raw, strict=True))
    # Leads that two-byte characters do not reach stand for themselves, or follow in order.
    rest = {chr(byte): byte for byte in range(0xE0, 0x100)}
    alphabet = ascii_part | pairs | rest | {chr(byte): byte for byte in (0xC0, 0xC1)}
    return {byte: char for char, byte in alphabet.items()}


SPELLED = byte_spellings()


def built(backend: tokenizers.Tokenizer) -> Tokenizer:
    backend.add_special_tokens(["<bos>", "<|im_end|>"])
    backend.add_tokens([AddedToken(text, normalized=False) for text in ("<think>", "a b é")])
    return Tokenizer(TokenizerData(json=backend.to_str()))


def byte_level() -> Tokenizer:
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=310, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(TEXTS * 2, trainer)
    return built(backend)


def with_decoder(decoder: decoders.Decoder | None) -> Tokenizer:
    """A vocabulary in SentencePiece's spelling, with one of the many decoders it comes with."""
    words = ["▁", "▁▁", "▁leading", "▁x", "x▁", "é", "社", "a", "<0x+F>", "<0xZZ>", "ab</w>", "##a"]
    vocabulary = {text: index for index, text in enumerate(["<unk>", *BYTES, *words])}
    backend = tokenizers.Tokenizer(
        models.BPE(vocab=vocabulary, merges=[], byte_fallback=True, unk_token="<unk>")
    )
    if decoder is not None:
        backend.decoder = decoder  # pyright: ignore[reportAttributeAccessIssue]
    return built(backend)


SPACE = decoders.Replace("▁", " ")
FALLBACK = (SPACE, decoders.ByteFallback(), decoders.Fuse())
STREAMED = {
    "byte level": byte_level(),
    "byte fallback": with_decoder(decoders.Sequence([*FALLBACK])),
    "byte fallback, first space stripped": with_decoder(
        decoders.Sequence([*FALLBACK, decoders.Strip(" ", 1, 0)])
    ),
    "two first spaces stripped": with_decoder(
        decoders.Sequence([*FALLBACK, decoders.Strip(" ", 2, 0)])
    ),
    "each token stripped": with_decoder(decoders.Sequence([SPACE, decoders.Strip(" ", 1, 0)])),
    "replaced across tokens": with_decoder(
        decoders.Sequence([decoders.Fuse(), decoders.Replace("▁x", "-")])
    ),
    "metaspace": with_decoder(decoders.Metaspace()),
    "metaspace without prefix": with_decoder(decoders.Metaspace(prepend_scheme="never")),
    "nested": with_decoder(
        decoders.Sequence([decoders.Sequence([SPACE]), decoders.Sequence([decoders.Fuse()])])
    ),
    "no decoder": with_decoder(None),
}
WHOLE = {
    "word pieces": with_decoder(decoders.WordPiece()),
    "word ends": with_decoder(decoders.BPEDecoder()),
    "connectionist": with_decoder(decoders.CTC()),
    "a regular expression": with_decoder(
        decoders.Sequence([decoders.Replace(tokenizers.Regex("▁+"), " "), decoders.Fuse()])
    ),
}
ALL = STREAMED | WHOLE


def streamed(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    detokenizer = Detokenizer(tokenizer)
    return [*map(detokenizer.add, ids), detokenizer.finish()]


def ids_of(tokenizer: Tokenizer, *texts: str) -> list[int]:
    ids = [tokenizer.token_id(text) for text in texts]
    assert None not in ids
    return [index for index in ids if index is not None]


def random_sequences(tokenizer: Tokenizer, count: int, *, seed: int) -> list[list[int]]:
    """Half of them from the whole vocabulary and beyond, half mostly of bytes and short pieces."""
    draw = random.Random(seed)
    size = tokenizer.vocab_size
    spellings = [tokenizer.spelling(index) or "" for index in range(size)]
    short = [i for i, text in enumerate(spellings) if len(text) <= 2 or text.startswith("<0x")]
    sequences = []
    for number in range(count):
        length = draw.randrange(1, 40)
        few = number % 2 == 1
        sequences.append(
            [
                draw.choice(short) if few and draw.random() < 0.9 else draw.randrange(size + 99)
                for _ in range(length)
            ]
        )
    return sequences


@pytest.mark.parametrize("tokenizer", ALL.values(), ids=ALL.keys())
def test_streamed_text_is_the_decoding_of_2000_random_id_sequences(tokenizer: Tokenizer) -> None:
    sequences = random_sequences(tokenizer, 2000, seed=1)
    differing = [
        ids for ids in sequences if "".join(streamed(tokenizer, ids)) != tokenizer.decode(ids)
    ]
    assert differing == []


@given(st.sampled_from(list(ALL)), st.data())
def test_streamed_text_is_the_decoding(name: str, data: st.DataObject) -> None:
    tokenizer = ALL[name]
    ids = data.draw(st.lists(st.integers(-2, tokenizer.vocab_size + 2), max_size=12))
    assert "".join(streamed(tokenizer, ids)) == tokenizer.decode(ids)


@given(st.binary(max_size=16))
def test_every_byte_string_streams_as_it_decodes(data: bytes) -> None:
    for name, spelled in (("byte level", SPELLED), ("byte fallback", BYTES)):
        tokenizer = STREAMED[name]
        ids = ids_of(tokenizer, *(spelled[byte] for byte in data))
        assert "".join(streamed(tokenizer, ids)) == tokenizer.decode(ids)


@pytest.mark.parametrize(
    ("data", "pieces"),
    [
        (b"a\xc4\x8fb", ["a", "", "ď", "b", ""]),
        (b"\xe7\xa4\xbe", ["", "", "社", ""]),
        (b"\xe7\xa4a", ["", "", "\ufffda", ""]),
        (b"\xff\x80", ["\ufffd", "\ufffd", ""]),
        (b"\xed\xa0\x80", ["", "\ufffd\ufffd", "\ufffd", ""]),
        (b"\xf0\x9f\xf0\x9f\x91\xa9", ["", "", "\ufffd", "", "", "👩", ""]),
        (b"\xf0\x9f\x91", ["", "", "", "\ufffd"]),
        (b"\xc0\xaf", ["\ufffd", "\ufffd", ""]),
        (b"\xf5\x80", ["\ufffd", "\ufffd", ""]),
    ],
)
def test_byte_level_text_is_released_as_soon_as_it_is_certain(
    data: bytes, pieces: list[str]
) -> None:
    tokenizer = STREAMED["byte level"]
    assert streamed(tokenizer, ids_of(tokenizer, *(SPELLED[byte] for byte in data))) == pieces


@pytest.mark.parametrize(
    ("data", "pieces"),
    [
        (b"\xc4\x8f", ["", "", "ďa", ""]),
        (b"\xc4\x8f\xff\xc4", ["", "", "\ufffd" * 3, "\ufffd", "a", ""]),
        (b"\xe7\xa4", ["", "", "\ufffd\ufffda", ""]),
        (b"\xed\xa0", ["", "\ufffd\ufffd", "a", ""]),
    ],
)
def test_a_run_of_fallback_bytes_is_text_as_a_whole_or_not_at_all(
    data: bytes, pieces: list[str]
) -> None:
    tokenizer = STREAMED["byte fallback"]
    ids = ids_of(tokenizer, *(BYTES[byte] for byte in data), "a")
    assert streamed(tokenizer, ids) == pieces


def test_bug_35_leading_spaces_of_byte_level_texts_are_kept() -> None:
    tokenizer = STREAMED["byte level"]
    for text in (" leading space", "  two", "  \n  "):
        assert (
            "".join(streamed(tokenizer, tokenizer.encode(text, add_special_tokens=False))) == text
        )


def test_bug_35_spaces_at_the_start_follow_the_decoder_and_no_other_rule() -> None:
    pieces = ("▁", "▁leading", "▁x")
    keeping = STREAMED["byte fallback"]
    assert streamed(keeping, ids_of(keeping, *pieces)) == [" ", " leading", " x", ""]
    stripping = STREAMED["byte fallback, first space stripped"]
    assert streamed(stripping, ids_of(stripping, *pieces)) == ["", " leading", " x", ""]


def test_bug_36_a_character_split_over_tokens_is_held_and_comes_whole() -> None:
    tokenizer = STREAMED["byte level"]
    for text in ("ďábelské", "Swift 社区非常活跃", "私の 👩‍👩‍👧"):
        pieces = streamed(tokenizer, tokenizer.encode(text, add_special_tokens=False))
        assert "".join(pieces) == text
        assert not any("\ufffd" in piece for piece in pieces)


def test_bug_36_a_character_cut_off_by_a_space_is_replaced_once() -> None:
    tokenizer = STREAMED["byte level"]
    ids = ids_of(tokenizer, "ç", "¤", "Ġ", "c")
    assert streamed(tokenizer, ids) == ["", "", "\ufffd ", "c", ""]


def test_special_tokens_are_skipped_and_other_added_tokens_are_text() -> None:
    tokenizer = STREAMED["byte level"]
    ids = ids_of(tokenizer, "<bos>", "a", "<think>", "a b é", "<|im_end|>", "c")
    assert streamed(tokenizer, ids) == ["", "a", "<think>", "a b é", "", "c", ""]


@pytest.mark.parametrize("tokenizer", WHOLE.values(), ids=WHOLE.keys())
def test_a_decoder_that_can_change_any_earlier_text_speaks_at_the_end(tokenizer: Tokenizer) -> None:
    ids = ids_of(tokenizer, "▁x", "ab</w>", "##a", "a")
    assert streamed(tokenizer, ids) == ["", "", "", "", tokenizer.decode(ids)]


# Published tokenizers, when they are there.


@cache
def published(name: str) -> Tokenizer:
    places = [cache_folder() / "tokenizers"]
    if chosen := os.environ.get("PHYLA_TEST_TOKENIZERS"):
        places.insert(0, Path(chosen))
    for place in places:
        file = place / name / "tokenizer.json"
        if file.is_file():
            return Tokenizer(TokenizerData(json=file.read_text(encoding="utf-8")))
    pytest.skip(f"no {name} tokenizer here: run scripts/fetch_test_data.py")


@pytest.fixture(scope="module")
def qwen3() -> Tokenizer:
    return published("qwen3")


@pytest.fixture(scope="module", params=["qwen3", "gemma3"])
def either(request: pytest.FixtureRequest) -> Tokenizer:
    return published(request.param)


def test_published_tokenizers_stream_2000_random_id_sequences_exactly(either: Tokenizer) -> None:
    sequences = random_sequences(either, 2000, seed=2)
    differing = [ids for ids in sequences if "".join(streamed(either, ids)) != either.decode(ids)]
    assert differing == []


@pytest.mark.parametrize(
    "text", [" leading space", "  two", "  \n  ", "ďábelské", "Swift 社区非常活跃", "私の 👩‍👩‍👧"]
)
def test_bugs_35_and_36_published_tokenizers_stream_the_text(either: Tokenizer, text: str) -> None:
    pieces = streamed(either, either.encode(text, add_special_tokens=False))
    assert "".join(pieces) == text
    assert not any("\ufffd" in piece for piece in pieces)


def test_bugs_35_and_36_the_reported_qwen3_ids_stream_as_they_decode(qwen3: Tokenizer) -> None:
    leading = [129875, 117831]
    assert "".join(streamed(qwen3, leading)) == qwen3.decode(leading)
    assert "".join(streamed(qwen3, leading)).startswith(" ")
    active = [55336, 76952, 122, 23836, 99491, 105266]
    assert "".join(streamed(qwen3, active)) == "Swift 社区非常活跃"
