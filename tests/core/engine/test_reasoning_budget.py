"""Reasoning that is closed for the model, and what runs in the answer only."""

from __future__ import annotations

import importlib
import json
import math
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import mlx.core as mx
import numpy as np
import pytest

from phyla.events import ReasoningDelta
from phyla.hooks import AnswerOnly, LogitsProcessor, hookimpl
from phyla.prompt import Prompt
from phyla.testing import BYTE_TOKENS, CHATML, ScriptedEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from phyla.events import Reply
    from phyla.family import Family
    from phyla.options import Options

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 272,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 1024,
}
MOST = 30


class Marks(NamedTuple):
    family: str
    hint: str
    tokens: tuple[str, ...]
    open: str
    close: str
    end: str


KINDS = {
    "one token": Marks(
        "qwen3", "", ("<think>", "</think>"), "<think>\n", "\n</think>\n\n", "<|im_end|>"
    ),
    "text": Marks(
        "nemotron_h", "<TOOLCALL>", ("<SPECIAL_12>",), "<think>\n", "\n</think>\n\n", "<SPECIAL_12>"
    ),
    "with a title": Marks(
        "gemma4",
        "",
        ("<|channel>", "<channel|>", "<turn|>"),
        "<|channel>thought\n",
        "\n<channel|>",
        "<turn|>",
    ),
}


def family_of(name: str) -> Family:
    """A Llama with that family's dialect."""
    llama = importlib.import_module("phyla_families.llama.plugin").LLAMA
    dialect = importlib.import_module(f"phyla_families.{name}.dialect").dialect
    return replace(llama, dialect=dialect)


class Thinking(NamedTuple):
    marks: Marks
    scripted: ScriptedEngine

    @property
    def ending(self) -> list[int]:
        """What closes reasoning for the model."""
        reasoning = self.scripted.engine.machine.loaded.runtime.voice.dialect.reasoning
        assert reasoning is not None
        return self.scripted.ids(reasoning.ending)

    @property
    def inside(self) -> Prompt:
        """A prompt that ends inside reasoning."""
        prompt = self.scripted.engine.encode("Hi")
        text = prompt.text + self.marks.open
        return Prompt(ids=tuple(self.scripted.ids(text)), text=text, opens_reasoning=True)

    @property
    def words(self) -> dict[str, Any]:
        """Options for a reply of words alone, with no token that ends a turn or marks anything."""
        marks = range(BYTE_TOKENS, self.scripted.engine.tokenizer.vocab_size)
        return {"suppress_tokens": tuple(marks), "max_tokens": MOST}

    def end(self) -> list[int]:
        return self.scripted.ids(self.marks.end)


@pytest.fixture(scope="module", params=KINDS)
def loaded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Thinking]:
    marks = KINDS[request.param]
    with ScriptedEngine(
        tmp_path_factory.mktemp("budget") / "tiny",
        CONFIG,
        family_of(marks.family),
        chat_template="{# <think> " + marks.hint + " #}" + CHATML,
        marks=marks.tokens,
        special_marks=True,
        end=marks.end,
    ) as scripted:
        yield Thinking(marks, scripted)


@pytest.fixture(params=[False, True], ids=["step by step", "running ahead"])
def model(
    request: pytest.FixtureRequest, loaded: Thinking, monkeypatch: pytest.MonkeyPatch
) -> Thinking:
    """The model, on a device that starts the next step before it has the token, or does not."""
    scheduler = loaded.scripted.engine.machine.loaded.scheduler
    monkeypatch.setattr(scheduler, "run_ahead", request.param)
    return loaded


def test_what_was_thought_stays_and_the_answer_goes_on(model: Thinking) -> None:
    said = "abcd" + "?" * len(model.ending) + "It is 4."
    reply = model.scripted.chat(said, model.inside, options={"reasoning_budget": 4})
    assert reply.tokens == (*b"abcd", *model.ending, *b"It is 4.", *model.end())
    assert (reply.reasoning, reply.text, reply.finish_reason) == ("abcd", "It is 4.", "stop")
    assert reply.usage.reasoning_tokens == 4


def test_a_budget_of_nothing_closes_what_the_prompt_opens_at_once(model: Thinking) -> None:
    said = "?" * len(model.ending) + "It is 4."
    reply = model.scripted.chat(said, model.inside, options={"reasoning_budget": 0})
    assert reply.tokens == (*model.ending, *b"It is 4.", *model.end())
    assert (reply.reasoning, reply.text) == ("", "It is 4.")
    assert reply.usage.reasoning_tokens == 0


def test_a_budget_of_nothing_closes_what_the_model_opens_at_once(model: Thinking) -> None:
    opened = model.scripted.ids(model.marks.open.split("\n")[0].removesuffix("thought"))
    said = [*opened, *b"?" * len(model.ending), *b"It is 4.", *model.end()]
    reply = model.scripted.chat(said, options={"reasoning_budget": 0})
    assert reply.tokens == (*opened, *model.ending, *b"It is 4.", *model.end())
    assert (reply.reasoning, reply.text) == ("", "It is 4.")
    assert reply.usage.reasoning_tokens == 0


@pytest.mark.parametrize("budget", [4, 5, 1000])
def test_a_model_that_stops_thinking_by_itself_is_left_alone(budget: int, model: Thinking) -> None:
    said = f"abc{model.marks.close}It is 4."
    free = model.scripted.chat(said, model.inside, options={"seed": 1})
    held = model.scripted.chat(said, model.inside, options={"seed": 1, "reasoning_budget": budget})
    if budget > 4:
        # A mark that is spelt out is no thought while it may still close the reasoning.
        assert (held.tokens, held.reasoning, held.text) == (free.tokens, "abc", "It is 4.")
    else:
        assert held.tokens[:4] == free.tokens[:4]
        assert held.tokens[4 : 4 + len(model.ending)] == tuple(model.ending)


def test_a_model_that_does_not_think_is_left_alone(model: Thinking) -> None:
    reply = model.scripted.chat("It is 4.", options={"reasoning_budget": 0})
    assert (reply.text, reply.reasoning, reply.finish_reason) == ("It is 4.", "", "stop")
    assert reply.tokens == (*b"It is 4.", *model.end())


def test_a_budget_that_outlives_the_reply_changes_nothing(model: Thinking) -> None:
    options = {**model.words, "seed": 4, "max_tokens": 10}
    free = model.scripted.chat(None, model.inside, options=options)
    held = model.scripted.chat(None, model.inside, options={**options, "reasoning_budget": 10})
    assert held.tokens == free.tokens
    assert (held.finish_reason, held.usage.reasoning_tokens) == ("length", 10)


def test_max_tokens_may_end_a_reply_among_the_forced_tokens(model: Thinking) -> None:
    reply = model.scripted.chat(
        "a" * 40, model.inside, options={"reasoning_budget": 3, "max_tokens": 4}
    )
    assert reply.tokens == (*b"aaa", *model.ending[:1])
    assert (reply.reasoning.rstrip("\n"), reply.text, reply.finish_reason) == ("aaa", "", "length")


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0},
        {"temperature": 0, "repetition_penalty": 1.5},
        {"temperature": 0, "presence_penalty": 1.0, "frequency_penalty": 0.7, "penalty_window": 40},
    ],
    ids=["greedy", "repetition", "presence and frequency"],
)
def test_the_answer_is_what_the_model_says_after_these_tokens(
    options: dict[str, Any], model: Thinking
) -> None:
    prompt = model.inside
    options = {**model.words, **options}
    free = model.scripted.chat(None, prompt, options=options)
    held = model.scripted.chat(None, prompt, options={**options, "reasoning_budget": 7})
    closed = 7 + len(model.ending)
    assert held.tokens[:7] == free.tokens[:7]
    assert held.tokens[7:closed] == tuple(model.ending)
    assert len(held.tokens) == MOST
    longer = Prompt(ids=(*prompt.ids, *held.tokens[:closed]))
    rest = {**options, "max_tokens": len(held.tokens) - closed}
    assert held.tokens[closed:] == model.scripted.chat(None, longer, options=rest).tokens


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 1.2},
        {"temperature": 1.2, "top_p": 0.8},
        {"temperature": 1.0, "top_k": 5, "frequency_penalty": 0.5},
    ],
    ids=["temperature", "top-p, which waits for tokens", "penalties"],
)
def test_a_seed_makes_it_repeatable_on_every_device(
    options: dict[str, Any], loaded: Thinking, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = loaded.scripted.engine
    replies: list[Reply] = []
    for run_ahead in (False, True, False):
        monkeypatch.setattr(engine.machine.loaded.scheduler, "run_ahead", run_ahead)
        replies.append(
            loaded.scripted.chat(
                None,
                loaded.inside,
                options={
                    **loaded.words,
                    **options,
                    "seed": 9,
                    "reasoning_budget": 5,
                    "logprobs": True,
                },
            )
        )
    first, *others = replies
    assert first.tokens[5 : 5 + len(loaded.ending)] == tuple(loaded.ending)
    for other in others:
        assert (other.tokens, other.text) == (first.tokens, first.text)
        assert other.logprobs == first.logprobs
    free = loaded.scripted.chat(None, loaded.inside, options={**loaded.words, **options, "seed": 9})
    assert free.tokens[:5] == first.tokens[:5]


def test_log_probabilities_are_those_of_the_tokens_forced_or_not(model: Thinking) -> None:
    prompt = model.inside
    reply = model.scripted.chat(
        None, prompt, options={**model.words, "reasoning_budget": 5, "top_logprobs": 2, "seed": 3}
    )
    entries = reply.logprobs
    assert entries is not None
    assert [entry.token for entry in entries] == list(reply.tokens)
    engine = model.scripted.engine
    logits = engine.trace([*prompt.ids, *reply.tokens]).logits[len(prompt.ids) - 1 : -1]
    known = logits[:, : engine.tokenizer.vocab_size].astype(np.float64)
    expected = known - np.log(np.exp(known).sum(axis=-1, keepdims=True))
    for row, entry in zip(expected, entries, strict=True):
        assert entry.logprob == pytest.approx(row[entry.token], abs=1e-3)
        assert [token for token, _ in entry.top] == list(np.argsort(-row, kind="stable")[:2])


def test_spans_share_one_budget_where_reasoning_may_be_entered_again(model: Thinking) -> None:
    if model.marks.family != "gemma4":
        pytest.skip("this model thinks once")
    more = model.scripted.ids("<|channel>")
    said = [
        *b"abcd", *b"?" * len(model.ending), *b"First. ", *more, *b"?" * len(model.ending),
        *b"Then.", *model.end(),
    ]  # fmt: skip
    reply = model.scripted.chat(said, model.inside, options={"reasoning_budget": 4})
    assert reply.tokens == (
        *b"abcd", *model.ending, *b"First. ", *more, *model.ending, *b"Then.", *model.end(),
    )  # fmt: skip
    assert (reply.reasoning, reply.text) == ("abcd", "First. Then.")
    assert reply.usage.reasoning_tokens == 4


# Processors that run in the answer only.


class Plugin:
    """A plugin with one processor."""

    def __init__(self, processor: LogitsProcessor) -> None:
        self._processor = processor

    @hookimpl
    def phyla_logits_processors(self, request: Options) -> list[LogitsProcessor]:
        return [self._processor]


class AnswerObject:
    """A grammar for `{"answer": "..."}` with five letters: masks all other tokens, and keeps track.

    It sees each of its own tokens once, as a grammar with a state would, and nothing else.
    """

    END = 258

    def __init__(self) -> None:
        self.seen: list[tuple[int, ...]] = []

    def __call__(self, tokens: Sequence[int], logits: mx.array) -> mx.array:
        self.seen.append(tuple(tokens))
        return mx.where(self._allowed(tuple(tokens), logits.shape[0]), logits, -math.inf)

    def _allowed(self, tokens: tuple[int, ...], size: int) -> mx.array:
        before, after = b'{"answer": "', b'"}'
        place = len(tokens)
        ids = mx.arange(size)
        if place < len(before):
            return ids == before[place]
        place -= len(before)
        if place < 5:
            return (ids >= ord("a")) & (ids <= ord("z"))
        return ids == (after[place - 5] if place - 5 < len(after) else self.END)


@pytest.fixture
def grammar() -> AnswerObject:
    return AnswerObject()


@pytest.fixture
def guided(
    grammar: AnswerObject, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], Thinking]]:
    """A model of Qwen's dialect, under the grammar."""
    marks = KINDS["one token"]
    with ScriptedEngine(
        tmp_path_factory.mktemp("grammar") / "tiny",
        CONFIG,
        family_of(marks.family),
        marks=marks.tokens,
        modules=[Plugin(AnswerOnly(grammar))],
    ) as scripted:
        yield lambda: Thinking(marks, scripted)


def assert_grammatical(reply: Reply) -> None:
    answer = json.loads(reply.text)
    assert list(answer) == ["answer"]
    assert len(answer["answer"]) == 5


def test_bug_24_a_grammar_begins_where_the_models_reasoning_ends(
    guided: Callable[[], Thinking], grammar: AnswerObject
) -> None:
    model = guided()
    said = model.scripted.ids("I think.\n</think>")
    reply = model.scripted.chat(said, model.inside, options={"max_tokens": 60})
    assert reply.reasoning == "I think."
    assert_grammatical(reply)
    assert reply.finish_reason == "stop"
    answer = reply.tokens[len(said) :]
    assert grammar.seen == [answer[:count] for count in range(len(answer) + 1)][: len(grammar.seen)]
    assert len(grammar.seen) >= len(answer)


def test_bug_24_a_grammar_begins_where_reasoning_is_closed_for_the_model(
    guided: Callable[[], Thinking], grammar: AnswerObject
) -> None:
    model = guided()
    options = {"max_tokens": 60, "reasoning_budget": 6}
    reply = model.scripted.chat(list(b"I think of a lot"), model.inside, options=options)
    assert reply.reasoning == "I thin"
    assert_grammatical(reply)
    assert reply.finish_reason == "stop"
    # The forced tokens, of which some stand behind the mark, are no part of the answer.
    answer = reply.tokens[6 + len(model.ending) :]
    assert all(tokens == answer[: len(tokens)] for tokens in grammar.seen)


def test_bug_24_a_grammar_begins_at_once_where_nothing_is_thought(
    guided: Callable[[], Thinking], grammar: AnswerObject
) -> None:
    model = guided()
    reply = model.scripted.chat(None, options={"max_tokens": 60})
    assert reply.reasoning == ""
    assert_grammatical(reply)
    assert grammar.seen[0] == ()


# Cancelling.


class Gate:
    """A processor that waits, after some tokens, until it is opened."""

    def __init__(self, after: int) -> None:
        self._after = after
        self._open = threading.Event()

    def open(self) -> None:
        self._open.set()

    def __call__(self, tokens: Sequence[int], logits: mx.array) -> mx.array:
        if len(tokens) == self._after:
            assert self._open.wait(60)
        return logits


@pytest.mark.parametrize("opened_by", ["the prompt", "the model"])
def test_what_was_thought_before_a_reply_is_cancelled_is_kept(
    opened_by: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    marks = KINDS["one token"]
    gate = Gate(after=6)
    with ScriptedEngine(
        tmp_path_factory.mktemp("cancel") / "tiny",
        CONFIG,
        family_of(marks.family),
        marks=marks.tokens,
        modules=[Plugin(gate)],
    ) as scripted:
        model = Thinking(marks, scripted)
        if opened_by == "the prompt":
            stream = scripted.stream("abcdefghijkl", model.inside)
        else:
            stream = scripted.stream("<think>abcdefghijkl", "Hi")
        letters = "abcdef" if opened_by == "the prompt" else "abcde"
        thought = ""
        while thought != letters:
            event = next(stream)
            assert isinstance(event, ReasoningDelta)
            thought += event.text
        stream.cancel()
        gate.open()
        reply = stream.result()
    assert reply.finish_reason == "cancelled"
    assert reply.text == ""
    assert reply.reasoning == letters
    assert len(reply.tokens) == 6
    assert reply.usage.reasoning_tokens == len(reply.reasoning)
