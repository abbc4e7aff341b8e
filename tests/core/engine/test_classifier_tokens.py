"""A reply is read from its token ids: what is a marker, what is its spelling, and what is counted."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phyla.checkpoint import TokenizerData
from phyla.engine.reply_reader import MarkedDetokenizer, ReplyReader, single_tokens
from phyla.engine.tokenizer import Tokenizer
from phyla.events import ReasoningDelta, TextDelta
from phyla.family import Dialect, ReasoningMarks
from phyla.testing.replies import byte_tokenizer
from phyla.testing.tokenizer import tokenizer_json
from phyla.tools.hermes import HermesFormat

MARKS = ReasoningMarks(open="<think>", close="</think>", ending="\n</think>\n\n")
HERMES = Dialect(
    name="test",
    reasoning=MARKS,
    tools=HermesFormat(),
    call_ends=("</tool_call>",),
    call_syntax=("<q>",),
)
TOKENS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<q>", "<other>")
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": "<q>"}}\n</tool_call>'


def ids_of(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False)


def typed(text: str) -> list[int]:
    """A text's bytes, each a token, even where it spells a marker."""
    return list(text.encode())


def read(tokenizer: Tokenizer, ids: list[int], **given_how: object) -> ReplyReader:
    reader = ReplyReader(tokenizer, HERMES, **given_how)  # type: ignore[arg-type]
    for token in ids:
        reader.add(token)
    reader.finish()
    return reader


@pytest.mark.parametrize("special", [True, False])
def test_markers_are_seen_whether_or_not_they_are_special_tokens(special: bool) -> None:
    tokenizer = byte_tokenizer(TOKENS, special=special)
    raw = f"<think>\nplan\n</think>\n\nHi\n{CALL}\n"
    found = read(tokenizer, ids_of(tokenizer, raw), tools=()).classifier
    assert (found.text, found.reasoning, found.raw) == ("Hi", "plan", raw)
    assert [call.arguments for call in found.calls] == [{"a": "<q>"}]


def test_a_typed_marker_is_text_where_the_vocabulary_has_a_token_for_it() -> None:
    tokenizer = byte_tokenizer(TOKENS, special=True)
    ids = [*ids_of(tokenizer, "<think>a"), *typed("</think>"), *ids_of(tokenizer, "</think>b")]
    found = read(tokenizer, [*ids, *typed("<tool_call>")], tools=()).classifier
    assert (found.reasoning, found.text) == ("a</think>", "b<tool_call>")


def test_a_typed_marker_counts_where_the_vocabulary_has_no_token_for_it() -> None:
    tokenizer = byte_tokenizer(("<other>",), special=True)
    found = read(tokenizer, typed(f"<think>a</think>b{CALL}"), tools=()).classifier
    assert (found.reasoning, found.text, len(found.calls)) == ("a", "b", 1)


def test_special_tokens_that_are_no_markers_are_dropped() -> None:
    tokenizer = byte_tokenizer(TOKENS, special=True)
    found = read(tokenizer, ids_of(tokenizer, "a<other>b"), tools=()).classifier
    assert (found.text, found.raw) == ("ab", "ab")


@pytest.mark.parametrize("special", [True, False])
def test_without_tools_what_calls_are_written_with_is_text(special: bool) -> None:
    tokenizer = byte_tokenizer(TOKENS, special=special)
    found = read(tokenizer, ids_of(tokenizer, f"a{CALL}b"), tools=None).classifier
    assert found.text == found.raw == f"a{CALL}b"


def test_half_a_character_before_a_marker_ends_there() -> None:
    tokenizer = byte_tokenizer(TOKENS, special=True)
    think, close = ids_of(tokenizer, "<think></think>")
    reader = ReplyReader(tokenizer, HERMES)
    reader.add(think)
    assert reader.add(0xE4) == []
    assert reader.add(close) == [ReasoningDelta("\ufffd")]
    assert reader.add(0xBD) == [TextDelta("\ufffd")]
    reader.finish()
    assert reader.classifier.raw == "<think>\ufffd</think>\ufffd"


def test_tokens_inside_reasoning_are_counted() -> None:
    tokenizer = byte_tokenizer(TOKENS, special=True)
    reader = read(tokenizer, ids_of(tokenizer, "<think>four</think>answer"))
    assert reader.reasoning_tokens == 4
    assert read(tokenizer, typed("four"), in_reasoning=True).reasoning_tokens == 4
    assert read(tokenizer, typed("four")).reasoning_tokens == 0


def test_a_forced_close_ends_reasoning() -> None:
    tokenizer = byte_tokenizer(TOKENS, special=True)
    ids = [*typed("hm"), *ids_of(tokenizer, MARKS.ending), *typed("Hi")]
    found = read(tokenizer, ids, in_reasoning=True).classifier
    assert (found.reasoning, found.text) == ("hm", "Hi")


def test_only_texts_that_always_are_one_token_are_markers() -> None:
    tokenizer = byte_tokenizer(TOKENS, special=False)
    assert set(single_tokens(tokenizer, ["<think>", "<nothing>", "a"]).values()) == {"<think>", "a"}
    data = json.loads(tokenizer_json())
    data["model"]["vocab"]["<t"] = len(data["model"]["vocab"]) + 50  # a word, never chosen
    plain = Tokenizer(TokenizerData(json=json.dumps(data)))
    assert plain.token_id("<t") is not None
    assert single_tokens(plain, ["<t"]) == {}


_IDS = st.lists(st.integers(0, 256 + len(TOKENS) - 1), max_size=30)


@settings(max_examples=200, deadline=None)
@given(_IDS)
def test_the_raw_text_is_the_decoding_of_the_ids_with_markers_kept(ids: list[int]) -> None:
    tokenizer = byte_tokenizer(TOKENS, special=True)
    found = read(tokenizer, ids, tools=()).classifier
    parts: list[list[int]] = [[]]
    for token in ids:
        # Every marker stands for itself; `<other>` is special, and none of ours.
        if token < 256:
            parts[-1].append(token)
        elif token < 256 + len(TOKENS) - 1:
            parts += [[token], []]
    assert found.raw == "".join(tokenizer.decode(part, keep_special=True) for part in parts)


def test_a_decoder_that_cannot_be_streamed_keeps_markers_in_their_places() -> None:
    data = json.loads(tokenizer_json())
    data["decoder"] = {
        "type": "Sequence",
        "decoders": [{"type": "Replace", "pattern": {"Regex": "z+"}, "content": "z"}],
    }
    tokenizer = Tokenizer(TokenizerData(json=json.dumps(data)))
    think = tokenizer.token_id("<think>")
    assert think is not None
    detokenizer = MarkedDetokenizer(tokenizer, marks={think: "<think>"})
    pieces: list[str] = []
    for token in [97, think, 98]:
        text, mark = detokenizer.read(token)
        pieces += [text, mark or ""]
    assert "".join([*pieces, detokenizer.finish()]) == "a<think>b"
