"""Sessions, from the outside: what they say, hold, refuse, forget and give back."""

from __future__ import annotations

import gc
import importlib
import math
import threading
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import phyla
import phyla.engine.strand as strand_module
from phyla.engine.caches import FullCache
from phyla.engine.decode import Cursor
from phyla.engine.engine import load
from phyla.family import Step
from phyla.testing import ScriptedEngine, assert_close, prompt_ids, write_checkpoint
from phyla.testing.mixed import mixed, mixed_registry
from phyla.testing.thorough import some

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from phyla.engine.session import Session
    from phyla.engine.strand import Strand

LLAMA: dict[str, Any] = {
    "model_type": "llama", "vocab_size": 288, "hidden_size": 32, "intermediate_size": 48,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "max_position_embeddings": 512, "rope_theta": 10000.0,
}  # fmt: skip
WINDOW: dict[str, Any] = {
    **LLAMA, "model_type": "qwen3", "num_hidden_layers": 3, "head_dim": 16,
    "use_sliding_window": True, "sliding_window": 8,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
}  # fmt: skip
CONFIGS: dict[str, Mapping[str, Any]] = {
    "attention": LLAMA,
    "window": WINDOW,
    "everything": mixed("rwfsm"),
}
# Only ASCII is said, so that text tells all.
ASCII = {"suppress_tokens": (*range(32), *range(127, 264))}
GREEDY = {"temperature": 0, "ignore_eos": True, "max_tokens": 8}
DRAWN = {"temperature": 1.3, "seed": 7, "ignore_eos": True, "max_tokens": 8}
OPTIONS: dict[str, Mapping[str, Any]] = {
    "greedy": {"temperature": 0},
    "drawn": {"temperature": 1.3},
    "nucleus": {"temperature": 1.5, "top_p": 0.8},
    "few": {"temperature": 2.0, "top_k": 12, "min_p": 0.01},
    "penalties": {
        "temperature": 0.9, "repetition_penalty": 1.4, "presence_penalty": 0.7,
        "frequency_penalty": 0.6,
    },
    "penalties in a window": {
        "temperature": 0.9, "repetition_penalty": 1.4, "frequency_penalty": 0.6,
        "penalty_window": 6,
    },
    "bias": {"temperature": 1.0, "logit_bias": {65: 3.0, 66: 2.0}},
}  # fmt: skip
PROMPT = prompt_ids(30)


# Engines.


def make(folder: Path, name: str, **more: Any) -> phyla.Engine:
    registry = mixed_registry() if name == "everything" else None
    config = CONFIGS[name]
    return load(write_checkpoint(folder, config, registry=registry), registry=registry, **more)


@pytest.fixture(scope="module", params=list(some(CONFIGS, count=len(CONFIGS), most=1)))
def every(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[phyla.Engine]:
    """An engine for each way in which layers remember."""
    with make(tmp_path_factory.mktemp("every") / "tiny", request.param) as engine:
        yield engine


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[phyla.Engine]:
    with make(tmp_path_factory.mktemp("plain") / "tiny", "attention") as engine:
        yield engine


@pytest.fixture(params=[False, True], ids=["step by step", "ahead"])
def ahead(request: pytest.FixtureRequest) -> bool:
    """Whether the next step is started before the current token is seen."""
    return request.param


@contextmanager
def running(engine: phyla.Engine, *, ahead: bool) -> Iterator[None]:
    scheduler = engine.machine.loaded.scheduler
    before, scheduler.run_ahead = scheduler.run_ahead, ahead
    try:
        yield
    finally:
        scheduler.run_ahead = before


@contextmanager
def chunks(engine: phyla.Engine, size: int) -> Iterator[None]:
    """Prompts are read in chunks of so many tokens."""
    scheduler = engine.machine.loaded.scheduler
    before = scheduler.chunk, scheduler.shared_chunk
    scheduler.chunk = scheduler.shared_chunk = size
    try:
        yield
    finally:
        scheduler.chunk, scheduler.shared_chunk = before


@contextmanager
def held_up(engine: phyla.Engine) -> Iterator[None]:
    """The engine's thread waits, so that nothing begins before the block ends."""
    gate = threading.Event()
    waiting = engine.machine._worker.submit(gate.wait)
    try:
        yield
    finally:
        gate.set()
        waiting.result()


@contextmanager
def on_feed(act: Callable[[int], object]) -> Iterator[list[int]]:
    """Do something on the engine's thread before each chunk is fed; collects their sizes."""
    sizes: list[int] = []
    feed = Cursor.feed

    def feeding(self: Cursor, ids: Sequence[int], **more: Any) -> mx.array | None:
        act(len(sizes))
        sizes.append(len(ids))
        return feed(self, ids, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cursor, "feed", feeding)
        yield sizes


def begun(engine: phyla.Engine, ids: Sequence[int] = PROMPT, **more: Any) -> Session:
    """A session that holds these ids."""
    session = engine.session(**more)
    session.append_tokens(ids)
    return session


def alone(engine: phyla.Engine, ids: Sequence[int], options: Mapping[str, Any]) -> phyla.Reply:
    return engine.generate(ids, options=options, prompt_cache=False)


def strand(session: Session) -> Strand:
    return session._strand


def running_bytes(engine: phyla.Engine) -> int:
    scheduler = engine.machine.loaded.scheduler
    return engine.machine.call(lambda: scheduler.running)


def embeddings(engine: phyla.Engine, ids: Sequence[int]) -> np.ndarray[Any, Any]:
    """What the model's own table says of these ids."""
    model = engine.machine.loaded.runtime.model

    def look_up() -> np.ndarray[Any, Any]:
        one = mx.array([list(ids)])
        step = Step(ids=one, positions=mx.arange(len(ids))[None], extents=(len(ids),))
        return np.array(model.embed(step)[0].astype(mx.float32))

    return engine.machine.call(look_up)


def assert_as_before(session: Session, position: int, tokens: Sequence[int]) -> None:
    assert session.position == position == len(session.tokens)
    assert session.tokens == tuple(tokens)
    assert session.unread == ()


# Appending.


def test_positions_and_tokens_follow_what_is_appended(plain: phyla.Engine) -> None:
    with plain.session() as session:
        assert (session.position, session.tokens, session.unread) == (0, (), ())
        assert session.max_seq_len == plain.context == 512
        assert session.append_text("abc") == 3
        assert session.append_tokens([1, 2]) == 5
        assert session.append_tokens(np.array([3])) == 6  # pyright: ignore[reportArgumentType]
        assert session.append_embeddings(np.zeros((2, 32))) == 8
        assert session.tokens == (97, 98, 99, 1, 2, 3, -1, -1)
        reply = session.generate(GREEDY)
        assert session.position == 16
        assert session.tokens[8:] == reply.tokens
        assert reply.usage.prompt_tokens == 8
        assert reply.usage.completion_tokens == 8


def test_a_tokenizers_own_tokens_come_at_the_beginning_only(
    plain: phyla.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = plain.tokenizer
    asked: list[bool] = []
    encode = type(tokenizer).encode

    def encoding(self: Any, text: str, *, add_special_tokens: bool) -> list[int]:
        asked.append(add_special_tokens)
        return encode(self, text, add_special_tokens=add_special_tokens)

    monkeypatch.setattr(type(tokenizer), "encode", encoding)
    with plain.session() as session:
        session.append_text("a")
        session.append_text("b")
        session.append_text("c", add_special_tokens=True)
        session.append_text("d", add_special_tokens=False)
    assert asked == [True, False, True, False]


@pytest.mark.parametrize("name", ["greedy", "penalties", "bias"])
def test_a_session_says_what_the_engine_says(every: phyla.Engine, name: str, ahead: bool) -> None:
    options = {**OPTIONS[name], **ASCII, "seed": 5, "max_tokens": 12, "top_logprobs": 2}
    whole = alone(every, PROMPT, options)
    with running(every, ahead=ahead), every.session() as session:
        session.append_tokens(PROMPT[:1])
        session.append_tokens(PROMPT[1:17])
        session.append_tokens(PROMPT[17:])
        reply = session.generate(options)
    assert_same(reply, whole)


def assert_same(one: phyla.Reply, other: phyla.Reply) -> None:
    assert_alike([one], other)
    assert (one.seed, one.finish_reason) == (other.seed, other.finish_reason)


def assert_alike(parts: Sequence[phyla.Reply], whole: phyla.Reply) -> None:
    """The parts, joined, are the whole."""
    assert [token for part in parts for token in part.tokens] == list(whole.tokens)
    assert "".join(part.text for part in parts) == whole.text
    assert "".join(part.reasoning for part in parts) == whole.reasoning
    calls = [(call.name, call.arguments, call.raw) for part in parts for call in part.tool_calls]
    assert calls == [(call.name, call.arguments, call.raw) for call in whole.tool_calls]
    usages = [part.usage for part in parts]
    assert sum(u.completion_tokens for u in usages) == whole.usage.completion_tokens
    assert sum(u.reasoning_tokens for u in usages) == whole.usage.reasoning_tokens
    assert parts[-1].finish_reason == whole.finish_reason
    if whole.logprobs is not None:
        entries = [entry for part in parts for entry in part.logprobs or ()]
        assert [e.token for e in entries] == [e.token for e in whole.logprobs]
        found, expected = ([e.logprob for e in es] for es in (entries, whole.logprobs))
        assert found == pytest.approx(expected, abs=1e-3)
        assert [len(e.top) for e in entries] == [len(e.top) for e in whole.logprobs]


def test_embeddings_are_the_tokens_they_stand_for(every: phyla.Engine, ahead: bool) -> None:
    options = {**DRAWN, **ASCII, "logprobs": True}
    whole = alone(every, PROMPT, options)
    values = embeddings(every, PROMPT)
    for start, stop in ((0, 20), (1, 29), (13, 30), (29, 30)):
        with running(every, ahead=ahead), chunks(every, 7), every.session() as session:
            if start:
                session.append_tokens(PROMPT[:start])
            assert session.append_embeddings(values[start:stop]) == stop
            if stop < len(PROMPT):
                session.append_tokens(PROMPT[stop:])
            assert session.position == len(PROMPT)
            assert_same(session.generate(options), whole)


def test_a_reply_may_follow_embeddings_at_once(every: phyla.Engine, ahead: bool) -> None:
    whole = alone(every, PROMPT, DRAWN)
    values = embeddings(every, PROMPT)
    with running(every, ahead=ahead), every.session() as session:
        session.append_embeddings(values.tolist())
        first = session.generate({**DRAWN, "max_tokens": 3})
        second = session.generate({**DRAWN, "max_tokens": 5})
        assert_alike([first, second], whole)
        assert session.tokens == (*[-1] * len(PROMPT), *whole.tokens)
    with every.session() as session:
        session.append_embeddings(mx.array(values).astype(mx.float32))
        assert_same(session.generate(DRAWN), whole)


def test_penalties_see_no_token_where_there_were_embeddings(plain: phyla.Engine) -> None:
    options = {**GREEDY, "repetition_penalty": 50.0, "penalty_window": 40}
    with plain.session() as session:
        session.append_embeddings(embeddings(plain, PROMPT))
        session.append_tokens([10])
        reply = session.generate(options)
    whole = alone(plain, [*PROMPT, 10], {**GREEDY, "max_tokens": 1})
    # Nothing that was embedded is penalized, so the first token is what it would be without.
    assert reply.tokens[0] == whole.tokens[0] or whole.tokens[0] == 10


# Going on.


@pytest.mark.parametrize("name", list(OPTIONS))
def test_two_calls_give_what_one_longer_call_gives(
    every: phyla.Engine, name: str, ahead: bool
) -> None:
    options = {**OPTIONS[name], **ASCII, "top_logprobs": 1}
    with running(every, ahead=ahead), begun(every) as session:
        first = session.generate({**options, "seed": 11, "max_tokens": 7})
        seed = 11 if ahead else None
        second = session.generate({**options, "seed": seed, "max_tokens": 7})
        third = session.generate({**options, "max_tokens": 1})
        whole = alone(every, PROMPT, {**options, "seed": 11, "max_tokens": 15})
        assert_alike([first, second, third], whole)
        assert {first.seed, second.seed, third.seed} == {11}


def test_a_drawn_seed_is_kept_until_something_is_appended(plain: phyla.Engine) -> None:
    with begun(plain) as session:
        options = {**DRAWN, "seed": None}
        first = session.generate(options)
        assert session.generate(options).seed == first.seed
        assert session.generate({**options, "temperature": 1.7}).seed == first.seed
        assert session.generate({**options, "seed": 4}).seed == 4
        assert session.generate(options).seed == 4
        session.append_tokens([1])
        assert session.generate(options).seed != 4


def test_stop_texts_are_found_across_the_border(plain: phyla.Engine, ahead: bool) -> None:
    options = {**DRAWN, **ASCII, "max_tokens": 24, "logprobs": True}
    text = alone(plain, PROMPT, options).text
    stop = text[10:14]
    place = text.index(stop)
    options = {**options, "stop": [stop, "never said"]}
    whole = alone(plain, PROMPT, options)
    assert (whole.text, whole.finish_reason) == (text[:place], "stop")
    with running(plain, ahead=ahead):
        for border in range(max(1, place - 1), place + 4):
            with begun(plain) as session:
                first = session.generate({**options, "max_tokens": border})
                second = session.generate(options)
                assert first.finish_reason == "length"
                assert first.text == text[: min(border, place)]  # the rest may still be a stop
                assert_alike([first, second], whole)


def test_what_is_withheld_at_a_border_comes_when_it_is_no_stop_text(plain: phyla.Engine) -> None:
    options = {**DRAWN, **ASCII, "max_tokens": 12}
    whole = alone(plain, PROMPT, options)
    options["stop"] = whole.text[5:7] + "\n"  # newlines are suppressed
    with begun(plain) as session:
        first = session.generate({**options, "max_tokens": 7})
        second = session.generate({**options, "max_tokens": 5})
    assert first.text == whole.text[:5]
    assert_alike([first, second], whole)


def test_characters_are_joined_across_the_border(plain: phyla.Engine) -> None:
    said = "ä€😀".encode()
    with begun(plain) as session:
        texts = []
        for byte in said:
            options = {**GREEDY, "max_tokens": 1, "logit_bias": {byte: 1e4}}
            texts.append(session.generate(options).text)
        # Other options begin the reading anew, and nothing is said twice.
        assert "".join(texts) == said.decode()


@pytest.mark.parametrize("border", range(1, 8))
def test_a_change_of_options_tells_nothing_twice(plain: phyla.Engine, border: int) -> None:
    options = {**DRAWN, **ASCII}
    whole = alone(plain, PROMPT, options)
    with begun(plain) as session:
        first = session.generate({**options, "max_tokens": border})
        second = session.generate({**options, "max_tokens": 8 - border, "logprobs": True})
        assert_alike([first, second], whole)
        assert second.logprobs is not None
        assert len(second.logprobs) == 8 - border


def test_after_the_end_of_a_turn_the_model_can_be_made_to_go_on(
    plain: phyla.Engine, ahead: bool
) -> None:
    eos = min(plain.eos)
    ends = {**GREEDY, "ignore_eos": False, "logit_bias": {eos: 1e4}}
    goes_on = {**GREEDY, **ASCII, "max_tokens": 5}
    with running(plain, ahead=ahead), begun(plain) as session:
        first = session.generate(ends)
        assert (first.tokens, first.finish_reason, first.text) == ((eos,), "stop", "")
        for _ in range(2):
            again = session.generate(ends)
            assert (again.tokens, again.finish_reason, again.text) == ((eos,), "stop", "")
        second = session.generate(goes_on)
        expected = alone(plain, [*PROMPT, eos, eos, eos], goes_on)
        assert second.tokens == expected.tokens
        assert second.text == expected.text


def test_after_a_stop_text_the_model_can_be_made_to_go_on(plain: phyla.Engine) -> None:
    options = {**DRAWN, **ASCII, "max_tokens": 16}
    whole = alone(plain, PROMPT, options)
    with begun(plain) as session:
        first = session.generate({**options, "stop": whole.text[4:6]})
        assert first.finish_reason == "stop"
        count = len(first.tokens)
        second = session.generate({**options, "max_tokens": 16 - count})
        assert (*first.tokens, *second.tokens) == whole.tokens
        assert second.finish_reason == "length"
        assert whole.text.endswith(second.text)
        assert second.text


def test_the_penalties_look_at_the_whole_reply_and_its_prompt(plain: phyla.Engine) -> None:
    options = {**GREEDY, **ASCII, "repetition_penalty": 1e6}
    with begun(plain) as session:
        tokens = [*session.generate({**options, "max_tokens": 20}).tokens]
        tokens += session.generate({**options, "max_tokens": 20}).tokens
    assert len({*tokens, *PROMPT}) == 40 + len({*PROMPT})


class Recording:
    """A processor that writes down what it is told."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, ...]] = []

    def __call__(self, tokens: Sequence[int], logits: mx.array) -> mx.array:
        self.seen.append(tuple(tokens))
        return logits


def test_processors_are_told_the_reply_of_all_calls(
    plain: phyla.Engine, monkeypatch: pytest.MonkeyPatch, ahead: bool
) -> None:
    record = Recording()
    monkeypatch.setattr(type(plain._registry), "logits_processors", lambda self, options: (record,))
    with running(plain, ahead=ahead), begun(plain) as session:
        whole = alone(plain, PROMPT, DRAWN)
        expected, record.seen = record.seen, []
        session.generate({**DRAWN, "max_tokens": 3})
        session.generate({**DRAWN, "max_tokens": 5})
    assert record.seen == expected
    assert record.seen[-1] == whole.tokens[:7]


def test_a_processor_that_fails_harms_only_its_call(
    plain: phyla.Engine, monkeypatch: pytest.MonkeyPatch, ahead: bool
) -> None:
    whole = alone(plain, PROMPT, DRAWN)
    fails_at: int | None = 0

    def process(tokens: Sequence[int], logits: mx.array) -> mx.array:
        if len(tokens) == fails_at:
            raise KeyError("its own trouble")
        return logits

    monkeypatch.setattr(
        type(plain._registry), "logits_processors", lambda self, options: (process,)
    )
    for place in (0, 3):
        fails_at = place
        with running(plain, ahead=ahead), begun(plain) as session:
            for _ in range(2):
                with pytest.raises(phyla.PluginError):
                    session.generate({**DRAWN, "max_tokens": 8})
                assert session.tokens == (*PROMPT, *whole.tokens[:place])
            fails_at = None
            rest = session.generate({**DRAWN, "max_tokens": 8 - place})
            assert rest.tokens == whole.tokens[place:]


# Nothing that nobody asks for.


class Counts:
    """How many tokens went through a model, and for how many of them logits were computed."""

    def __init__(self) -> None:
        self.fed: list[int] = []
        self.logits = 0


@contextmanager
def counting(engine: phyla.Engine) -> Iterator[Counts]:
    counts = Counts()
    kind = type(engine.machine.loaded.runtime.model)
    call, logits = kind.__call__, kind.logits

    def calling(self: Any, hidden: mx.array, step: Step, caches: Sequence[Any]) -> mx.array:
        counts.fed.append(hidden.shape[1])
        return call(self, hidden, step, caches)

    def projecting(self: Any, hidden: mx.array) -> mx.array:
        counts.logits += 1
        return logits(self, hidden)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "__call__", calling)
        patch.setattr(kind, "logits", projecting)
        yield counts


@pytest.mark.parametrize("options", [GREEDY, DRAWN, {**DRAWN, "top_p": 0.8}])
def test_nothing_is_computed_that_nobody_asked_for(
    every: phyla.Engine, options: Mapping[str, Any], ahead: bool
) -> None:
    with running(every, ahead=ahead), every.session() as session, counting(every) as counts:
        session.append_tokens(PROMPT)
        assert (sum(counts.fed), counts.logits) == (len(PROMPT) - 1, 0)
        for _ in range(2):
            before = len(counts.fed), counts.logits
            session.generate({**options, "max_tokens": 4})
            assert counts.fed[before[0] :] == [1] * 4
            assert counts.logits - before[1] == 4
        session.append_tokens([1, 2, 3])
        assert sum(counts.fed) == session.position - 1
        assert counts.logits == 8
        session.generate({**options, "max_tokens": 1})
        assert (sum(counts.fed), counts.logits) == (session.position - 1, 9)


def test_what_an_end_of_turn_makes_needless_is_not_kept(every: phyla.Engine) -> None:
    eos = min(every.eos)
    options = {**GREEDY, "ignore_eos": False, "logit_bias": {eos: 1e4}}
    with running(every, ahead=False), begun(every) as session:
        session.generate(options)
        assert strand(session).cursor.length == session.position - 1
        assert strand(session).logits is None


# Chats.


class Talking:
    """A session whose replies are written beforehand."""

    def __init__(self, scripted: ScriptedEngine, **more: Any) -> None:
        self.scripted = scripted
        self.session = scripted.engine.session(**more)

    def says(self, text: str, **options: Any) -> phyla.Reply:
        """The reply that begins so, to which nothing is added; the weights go on behind it."""
        self.prepare(text)
        return self.session.generate({"temperature": 0, **options})

    def prepare(self, text: str) -> list[int]:
        ids = self.scripted.ids(text)
        self.scripted._script.write(self.session.position, ids)
        return ids

    @property
    def text(self) -> str:
        """All that the session holds."""
        return self.scripted.engine.tokenizer.decode(self.session.tokens, keep_special=True)

    def template(self, messages: Sequence[Any], **more: Any) -> str:
        return self.scripted.engine.encode(messages, **more).text


QWEN3_LIKE = r"""
{%- if tools %}{{ "<|im_start|>system\nTools: " + (tools | tojson) + "<|im_end|>\n" }}{% endif %}
{%- for message in messages %}
{%- if message.role == "tool" %}
{{- "<|im_start|>user\n<tool_response>\n" + message.content + "\n</tool_response>" }}
{%- else %}
{{- "<|im_start|>" + message.role + "\n" + message.content }}
{%- for call in message.tool_calls or [] %}
{{- "\n" if message.content }}
{{- "<tool_call>\n{\"name\": \"" + call.function.name + "\", \"arguments\": " }}
{{- call.function.arguments | tojson }}{{ "}\n</tool_call>" }}
{%- endfor %}
{%- endif %}
{{- "<|im_end|>\n" }}
{%- endfor %}
{%- if add_generation_prompt %}{{ "<|im_start|>assistant\n" }}{% endif %}
"""


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptedEngine]:
    family = importlib.import_module("phyla_families.llama.plugin").LLAMA
    dialect = importlib.import_module("phyla_families.qwen3.dialect").dialect
    folder = tmp_path_factory.mktemp("scripted") / "tiny"
    with ScriptedEngine(
        folder, {**LLAMA, "vocab_size": 288, "max_position_embeddings": 4096},
        replace(family, dialect=dialect), chat_template=QWEN3_LIKE,
    ) as made:  # fmt: skip
        yield made


@pytest.fixture
def talk(scripted: ScriptedEngine) -> Iterator[Talking]:
    talking = Talking(scripted)
    yield talking
    talking.session.close()


END = "<|im_end|>"


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


@pytest.mark.parametrize("ended", [True, False], ids=["ended", "cut"])
def test_a_session_of_plain_turns_is_what_the_template_writes(talk: Talking, ended: bool) -> None:
    session = talk.session
    first = [{"role": "system", "content": "Be kind."}, user("Hi")]
    assert session.append_chat(first) == len(talk.scripted.engine.encode(first).ids)
    assert talk.text == talk.template(first)
    messages: list[Any] = list(first)
    for turn in range(3):
        said = f" Reply {turn}: ä\n"
        count = len(talk.scripted.ids(said))
        if ended:
            reply = talk.says(said + END)
            assert reply.finish_reason == "stop"
        else:
            reply = talk.says(said + "which nobody will hear", max_tokens=count)
            assert reply.finish_reason == "length"
        messages += [assistant(said), user(f"Question {turn}?")]
        session.append_chat(messages[-1]["content"])
        assert talk.text == talk.template(messages)
        assert session.tokens == tuple(talk.scripted.engine.encode(messages).ids)


def test_the_other_end_of_turn_is_no_obstacle(talk: Talking) -> None:
    talk.session.append_chat("Hi")
    talk.says("Yes.<|endoftext|>")
    talk.session.append_chat("And?")
    whole = talk.template([user("Hi"), assistant("Yes."), user("And?")])
    assert talk.text.replace("<|endoftext|>", "") == whole


def test_a_reply_in_several_calls_is_one_turn(talk: Talking) -> None:
    talk.session.append_chat("Hi")
    talk.says("One, two, three." + END, max_tokens=5)
    talk.session.generate({"temperature": 0, "max_tokens": 4})
    assert talk.session.generate({"temperature": 0}).finish_reason == "stop"
    talk.session.append_chat([user("More"), user("please")])
    messages = [user("Hi"), assistant("One, two, three."), user("More"), user("please")]
    assert talk.text == talk.template(messages)


@pytest.mark.parametrize("thinks", [False, True])
def test_a_model_may_be_asked_to_go_on_after_its_end(talk: Talking, thinks: bool) -> None:
    talk.session.append_chat("Hi")
    said = THOUGHT if thinks else "The answer."
    talk.prepare(said + END + " More." + END)
    first = talk.session.generate({"temperature": 0})
    second = talk.session.generate({"temperature": 0})
    assert (first.text, second.text) == ("The answer.", " More.")
    assert (first.finish_reason, second.finish_reason) == ("stop", "stop")
    assert second.reasoning == ""


def test_results_of_tools_follow_the_calls(talk: Talking) -> None:
    tools = [{"name": "add", "description": "", "parameters": {"type": "object"}}]
    session = talk.session
    session.append_chat("2 + 3?", tools=tools)
    said = '<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 3}}\n</tool_call>'
    reply = talk.says(said + END)
    assert reply.finish_reason == "tool_calls"
    (call,) = reply.tool_calls
    result = phyla.ToolResult(call_id=call.id, name="add", text="5")
    session.append_chat([phyla.Message(role="tool", content=(result,))], tools=tools)
    messages = [user("2 + 3?"), reply.message, phyla.Message(role="tool", content=(result,))]
    assert talk.text == talk.template(messages, tools=tools)
    reply = talk.says("It is 5." + END)
    assert reply.text == "It is 5."
    session.append_chat("Thanks.", tools=tools)
    assert talk.text == talk.template([*messages, assistant("It is 5."), user("Thanks.")],
                                      tools=tools)  # fmt: skip


def test_calls_are_looked_for_in_the_turn_that_offers_tools(talk: Talking) -> None:
    said = '<tool_call>\n{"name": "add", "arguments": {}}\n</tool_call>'
    talk.session.append_chat("Hi")
    reply = talk.says(said + END)
    assert not reply.tool_calls
    talk.session.append_chat("Now?", tools=[{"name": "add", "parameters": {"type": "object"}}])
    assert [call.name for call in talk.says(said + END).tool_calls] == ["add"]


def test_a_turn_may_be_what_a_probe_looks_like(talk: Talking) -> None:
    from phyla.engine import encoder

    probe = next(v for k, v in vars(encoder).items() if isinstance(v, str) and k == "_REPLY")
    talk.session.append_chat(f"Say {probe}")
    talk.says(probe + END)
    talk.session.append_chat(f"Again: {probe}!")
    messages = [user(f"Say {probe}"), assistant(probe), user(f"Again: {probe}!")]
    assert talk.text == talk.template(messages)


def test_messages_wait_for_a_reply(talk: Talking) -> None:
    session = talk.session
    session.append_chat("Hi")
    before = session.tokens
    for _ in range(2):
        with pytest.raises(phyla.RequestError, match="reply") as caught:
            session.append_chat("Hello?")
        assert caught.value.field == "messages"
        assert_as_before(session, len(before), before)
    with held_up(talk.scripted.engine):
        stream = session.stream(GREEDY)
        stream.cancel()
    assert stream.result().tokens == ()
    with pytest.raises(phyla.RequestError, match="reply"):  # nothing was said
        session.append_chat("Hello?")
    talk.says("Oh." + END)
    session.append_chat("Hello?")
    assert talk.text == talk.template([user("Hi"), assistant("Oh."), user("Hello?")])


def test_a_template_that_hides_replies_is_refused(tmp_path: Path) -> None:
    template = (
        "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}"
    )
    folder = write_checkpoint(tmp_path / "hides", LLAMA, chat_template=template)
    with phyla.load(folder) as engine, engine.session() as session:
        session.append_chat("Hi")
        session.generate(GREEDY)
        before = session.tokens
        with pytest.raises(phyla.TemplateError, match="does not show"):
            session.append_chat("More")
        assert_as_before(session, 10, before)


def test_the_published_templates_go_on_with_plain_turns(tmp_path: Path, pytestconfig: Any) -> None:
    folder = pytestconfig.rootpath.parent / "shared" / "templates"
    template = folder / "qwen3-instruct-2507.jinja"
    if not template.exists():
        pytest.skip("the collection of templates is not here")
    family = importlib.import_module("phyla_families.llama.plugin").LLAMA
    dialect = importlib.import_module("phyla_families.qwen3.dialect").dialect
    with ScriptedEngine(
        tmp_path / "tiny", {**LLAMA, "max_position_embeddings": 4096},
        replace(family, dialect=dialect), chat_template=template.read_text(),
    ) as made:  # fmt: skip
        talk = Talking(made)
        tools = [{"name": "add", "parameters": {"type": "object"}}]
        talk.session.append_chat("2 + 3?", tools=tools)
        said = '<tool_call>\n{"name": "add", "arguments": {"a": 2}}\n</tool_call>'
        call = talk.says(said + END).message
        result = {"role": "tool", "content": "5"}
        talk.session.append_chat([result], tools=tools)
        talk.says("It is 5." + END)
        talk.session.append_chat("Thanks.", tools=tools)
        messages = [user("2 + 3?"), call, result, assistant("It is 5."), user("Thanks.")]
        assert talk.text == talk.template(messages, tools=tools)


THOUGHT = "<think>\nLet me see.\n</think>\n\nThe answer."
CALLED = '<think>\nA tool!\n</think>\n\n<tool_call>\n{"name": "f", "arguments": {"x": "<y>"}}\n</tool_call>'


@pytest.mark.parametrize("said", [THOUGHT, CALLED])
def test_reasoning_and_calls_are_read_across_any_border(talk: Talking, said: str) -> None:
    session, tools = talk.session, [{"name": "f", "parameters": {"type": "object"}}]
    session.append_chat("Hi", tools=tools)
    ids = talk.prepare(said + END)
    whole = alone(talk.scripted.engine, session.tokens, {"temperature": 0})
    assert whole.tokens == tuple(ids)
    whole = session_reply(session, {"temperature": 0, "seed": 1})
    for border in range(1, len(ids), 5):
        with session.fork() as fork:
            first = fork.generate({"temperature": 0, "max_tokens": border, "seed": 1})
            with fork.fork() as last:
                second = last.generate({"temperature": 0})
        assert first.finish_reason == "length"
        assert_alike([first, second], whole)
        assert [call.id for call in (*first.tool_calls, *second.tool_calls)] == [
            call.id for call in whole.tool_calls
        ]


def session_reply(session: Session, options: Mapping[str, Any]) -> phyla.Reply:
    with session.fork() as fork:
        return fork.generate(options)


@pytest.mark.parametrize("forked", [False, True])
def test_a_reasoning_budget_holds_across_any_border(talk: Talking, forked: bool) -> None:
    session = talk.session
    session.append_chat("Hi")
    talk.prepare("<think>\n" + "on and on " * 5)
    options = {"temperature": 0, "seed": 1, "reasoning_budget": 6, "max_tokens": 60}
    whole = session_reply(session, {**options, "max_tokens": 40})
    assert "</think>" in talk.scripted.engine.tokenizer.decode(whole.tokens, keep_special=True)
    for border in (1, 6, 7, 8, 9, 10, 11, 12, 13, 30):
        with session.fork() as fork:
            first = fork.generate({**options, "max_tokens": border})
            with fork.fork() if forked else fork as last:
                second = last.generate({**options, "max_tokens": 40 - border})
        assert (*first.tokens, *second.tokens) == whole.tokens, border
        assert first.text + second.text == whole.text
        assert first.reasoning + second.reasoning == whole.reasoning


# Cancelling.


def test_a_cancelled_append_stops_within_a_chunk_and_can_be_gone_on_with(
    every: phyla.Engine, ahead: bool
) -> None:
    whole = alone(every, PROMPT, DRAWN)
    for stop_at in range(4):
        with running(every, ahead=ahead), chunks(every, 8), every.session() as session:

            def cancel(count: int, session: Session = session, at: int = stop_at) -> None:
                if count == at:
                    assert session.position == 8 * at
                    session.cancel()

            with on_feed(cancel) as sizes:
                if stop_at < 3:
                    with pytest.raises(phyla.CancelledError, match="unread"):
                        session.append_tokens(PROMPT)
                    assert sizes == [8] * (stop_at + 1)
                else:  # too late: all was read
                    assert session.append_tokens(PROMPT) == 30
            read = min(30, 8 * (stop_at + 1)) if stop_at < 3 else 30
            assert session.position == read
            assert session.tokens == tuple(PROMPT[:read])
            assert session.unread == tuple(PROMPT[read:])
            assert_sticky(session)
            session.clear_cancel()
            if session.unread:
                assert_unread(session)
                session.append_tokens(session.unread)
            assert session.unread == ()
            assert_same(session.generate(DRAWN), whole)


def assert_sticky(session: Session) -> None:
    """All that works is refused until the cancel is cleared, and nothing changes."""
    before = session.tokens, session.unread
    for act in (
        lambda: session.append_tokens(session.unread or [1]),
        lambda: session.append_text("x"),
        lambda: session.append_embeddings(np.zeros((1, strand(session).width))),
        lambda: session.append_chat("x"),
        lambda: session.generate(GREEDY),
        lambda: session.stream(GREEDY),
    ):
        for _ in range(2):
            with pytest.raises(phyla.CancelledError, match="clear_cancel"):
                act()
    assert before == (session.tokens, session.unread)


def assert_unread(session: Session) -> None:
    """Nothing but the rest is taken, and nothing changes."""
    before = session.tokens, session.unread
    for act in (
        lambda: session.append_tokens([1]),
        lambda: session.append_tokens(before[1][1:]) if len(before[1]) > 1 else session.stream(),
        lambda: session.append_text("x"),
        lambda: session.append_embeddings(np.zeros((1, strand(session).width))),
        lambda: session.append_chat("x"),
        lambda: session.generate(GREEDY),
        lambda: session.stream(GREEDY),
    ):
        with pytest.raises(phyla.RequestError, match="unread"):
            act()
    assert before == (session.tokens, session.unread)


def test_the_rest_may_come_with_more_behind_it(plain: phyla.Engine) -> None:
    with chunks(plain, 8), plain.session() as session:
        with on_feed(lambda count: session.cancel()), pytest.raises(phyla.CancelledError):
            session.append_tokens(PROMPT)
        session.clear_cancel()
        assert session.append_tokens([*session.unread, 5, 6]) == 32
        assert session.tokens == (*PROMPT, 5, 6)
        assert_same(session.generate(DRAWN), alone(plain, [*PROMPT, 5, 6], DRAWN))


def test_a_rest_that_is_cancelled_again_leaves_its_own_rest(plain: phyla.Engine) -> None:
    with chunks(plain, 8), plain.session() as session:
        with on_feed(lambda count: session.cancel()):
            for place in (8, 16, 24):
                session.clear_cancel()
                with pytest.raises(phyla.CancelledError):
                    session.append_tokens(session.unread or PROMPT)
                assert session.unread == tuple(PROMPT[place:])
            session.clear_cancel()
            session.append_tokens(session.unread)
        session.clear_cancel()
        assert_same(session.generate(DRAWN), alone(plain, PROMPT, DRAWN))


def test_cancelled_embeddings_can_be_gone_on_with(every: phyla.Engine) -> None:
    values = embeddings(every, PROMPT)
    whole = alone(every, PROMPT, DRAWN)
    for before in (0, 1, 9):
        with chunks(every, 8), every.session() as session:
            if before:
                session.append_tokens(PROMPT[:before])
            with (
                on_feed(lambda count: count < 2 or session.cancel()),
                pytest.raises(phyla.CancelledError),
            ):
                session.append_embeddings(values[before:])
            read = session.position
            assert session.tokens == (*PROMPT[:before], *[-1] * (read - before))
            assert session.unread == (-1,) * (30 - read)
            session.clear_cancel()
            for wrong in (values[read : read + 1], values[read + 1 :], values[before:]):
                with pytest.raises(phyla.RequestError, match="unread"):
                    session.append_embeddings(wrong)
            with pytest.raises(phyla.RequestError, match="unread"):
                session.append_tokens(PROMPT[read:])
            assert session.append_embeddings(values[read:]) == 30
            assert_same(session.generate(DRAWN), whole)


def test_a_cancelled_chat_is_the_turn_that_its_rest_ends(talk: Talking) -> None:
    session = talk.session
    with chunks(talk.scripted.engine, 8):
        with (
            on_feed(lambda count: session.cancel()),
            pytest.raises(phyla.CancelledError),
        ):
            session.append_chat("What is there to say?")
        session.clear_cancel()
        session.append_tokens(session.unread)
    talk.says("Much." + END)
    with chunks(talk.scripted.engine, 8):
        with (
            on_feed(lambda count: session.cancel()),
            pytest.raises(phyla.CancelledError),
        ):
            session.append_chat("Then say it, one by one.")
        session.clear_cancel()
        with pytest.raises(phyla.RequestError):
            session.append_chat("Then say it, one by one.")
        session.append_tokens(session.unread)
    talk.says("One." + END)
    session.append_chat("Go on.")
    assert talk.text == talk.template(
        [
            user("What is there to say?"), assistant("Much."),
            user("Then say it, one by one."), assistant("One."), user("Go on."),
        ]
    )  # fmt: skip


def test_position_can_be_read_and_work_is_refused_while_it_reads(plain: phyla.Engine) -> None:
    entered, gate = threading.Semaphore(0), threading.Semaphore(0)

    def wait(count: int) -> None:
        entered.release()
        gate.acquire()

    with chunks(plain, 8), plain.session() as session, on_feed(wait):
        done: Future[int] = Future()
        thread = threading.Thread(target=lambda: done.set_result(session.append_tokens(PROMPT)))
        thread.start()
        seen = []
        for _ in range(4):
            entered.acquire()
            seen.append(session.position)
            assert session.tokens == tuple(PROMPT[: seen[-1]])
            assert_busy(session)
            gate.release()
        thread.join()
    assert seen == [0, 8, 16, 24]
    assert done.result() == 30


def assert_busy(session: Session, match: str = "working") -> None:
    for act in (
        lambda: session.append_tokens([1]),
        lambda: session.append_text("x"),
        lambda: session.append_embeddings(np.zeros((1, strand(session).width))),
        lambda: session.append_chat("x"),
        lambda: session.generate(GREEDY),
        lambda: session.stream(GREEDY),
        lambda: session.fork(),
        lambda: session.reset(),
    ):
        with pytest.raises(phyla.BusyError, match=match):
            act()


def test_work_is_refused_while_it_writes_and_taken_when_the_end_is_seen(
    plain: phyla.Engine,
) -> None:
    with begun(plain) as session:
        with held_up(plain):
            stream = session.stream(GREEDY)
            assert session.position == 30
            assert_busy(session)
        for event in stream:
            if event.kind == "finished":
                break
        assert session.append_tokens([1]) == 39


def test_a_cancelled_reply_goes_on_as_if_it_had_not_been(every: phyla.Engine, ahead: bool) -> None:
    options = {**OPTIONS["penalties"], **ASCII, "seed": 3, "max_tokens": 40, "logprobs": True}
    whole = alone(every, PROMPT, options)
    with running(every, ahead=ahead), begun(every) as session:
        parts: list[phyla.Reply] = []
        left = 40
        for count in (1, 4, 100):
            if not left:
                break
            stream = session.stream({**options, "max_tokens": left})
            for _ in range(count):
                next(stream, None)
            session.cancel()
            parts.append(stream.result())
            left -= len(parts[-1].tokens)
            assert parts[-1].finish_reason == ("cancelled" if left else "length")
            assert_sticky(session)
            session.clear_cancel()
        assert_alike(parts, whole)


def test_a_reply_is_cancelled_at_a_known_token_and_goes_on(
    every: phyla.Engine, monkeypatch: pytest.MonkeyPatch, ahead: bool
) -> None:
    whole = alone(every, PROMPT, DRAWN)
    take = strand_module.Continuing.take
    with running(every, ahead=ahead):
        for stop_at in range(1, 8):
            with begun(every) as session:

                def taking(
                    self: Any, sampled: Any, session: Session = session, at: int = stop_at
                ) -> bool:
                    goes_on = take(self, sampled)
                    if session.position == 30 + at:
                        session.cancel()
                    return goes_on

                with monkeypatch.context() as patch:
                    patch.setattr(strand_module.Continuing, "take", taking)
                    first = session.generate(DRAWN)
                assert first.finish_reason == "cancelled"
                assert first.tokens == whole.tokens[:stop_at]
                session.clear_cancel()
                with session.fork() as fork:
                    second = fork.generate({**DRAWN, "max_tokens": 8 - stop_at})
                    assert_alike([first, second], whole)
                session.append_tokens([1, 2])
                ids = [*PROMPT, *first.tokens, 1, 2]
                assert_same(session.generate(DRAWN), alone(every, ids, DRAWN))


def test_a_reply_that_is_cancelled_before_it_begins_says_nothing(plain: phyla.Engine) -> None:
    whole = alone(plain, PROMPT, DRAWN)
    with begun(plain) as session:
        first = session.stream({**DRAWN, "max_tokens": 3})
        events = list(first)
        for cancel in (session.cancel, None):
            with held_up(plain):
                stream = session.stream(DRAWN)
                (cancel or stream.cancel)()
            reply = stream.result()
            assert (reply.tokens, reply.text, reply.finish_reason) == ((), "", "cancelled")
            session.clear_cancel()
        assert list(first) == []  # and says it to nobody else
        rest = session.generate({**DRAWN, "max_tokens": 5})
        assert (*first.result().tokens, *rest.tokens) == whole.tokens
        assert len([event for event in events if event.kind == "finished"]) == 1


def test_a_dropped_stream_frees_its_session(plain: phyla.Engine) -> None:
    with begun(plain) as session:
        stream = session.stream({**DRAWN, "max_tokens": None})
        next(stream)
        del stream
        gc.collect()
        with session._working:  # until it has noticed
            pass
        assert session.position > 30
        session.reset()


def test_a_sink_sees_everything_and_may_fail(plain: phyla.Engine) -> None:
    with begun(plain) as session:
        events: list[phyla.Event] = []
        reply = session.generate({**DRAWN, **ASCII}, sink=events.append)
        assert "".join(e.text for e in events if isinstance(e, phyla.TextDelta)) == reply.text
        last = events[-1]
        assert isinstance(last, phyla.Finished)
        assert last.reply == reply

        def fail(event: phyla.Event) -> None:
            raise KeyError("its own trouble")

        with pytest.raises(KeyError):
            session.generate({**DRAWN, **ASCII, "max_tokens": None}, sink=fail)
        assert session.position > 38
        session.reset()  # it works no more


def test_an_interrupted_append_is_cancelled(
    plain: phyla.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(Future[None]):
        waits = 0

        def result(self, timeout: float | None = None) -> None:
            self.waits += 1
            if self.waits == 1:
                raise KeyboardInterrupt
            return super().result(timeout)

    gate = threading.Event()
    with chunks(plain, 8), plain.session() as session, on_feed(lambda count: gate.wait()):
        with monkeypatch.context() as patch:
            patch.setattr(strand_module, "Future", Interrupted)
            threading.Timer(0.0, gate.set).start()
            with pytest.raises(KeyboardInterrupt):
                session.append_tokens(PROMPT)
        assert session.tokens == tuple(PROMPT[: session.position])
        assert session.unread == tuple(PROMPT[session.position :])
        if session.unread:
            session.append_tokens(session.unread)
        assert_same(session.generate(DRAWN), alone(plain, PROMPT, DRAWN))


# Starting anew, and forks.


def test_a_reset_session_is_like_a_new_one(every: phyla.Engine) -> None:
    whole = alone(every, PROMPT, DRAWN)
    with chunks(every, 8), begun(every, prompt_ids(12, seed=3)) as session:
        session.generate({**DRAWN, "seed": 1})
        session.reset()
        assert (session.position, session.tokens, session.unread) == (0, (), ())
        session.append_tokens(PROMPT)
        assert_same(session.generate(DRAWN), whole)
        with on_feed(lambda count: session.cancel()), pytest.raises(phyla.CancelledError):
            session.append_tokens(PROMPT)
        session.reset()  # also while it is cancelled, which it stays
        assert (session.position, session.unread) == (0, ())
        with pytest.raises(phyla.CancelledError):
            session.append_tokens(PROMPT)
        session.clear_cancel()
        session.append_tokens(PROMPT)
        assert_same(session.generate(DRAWN), whole)


def test_a_reset_session_begins_a_conversation(talk: Talking) -> None:
    talk.session.append_chat("Hi")
    talk.says("Yes." + END)
    talk.session.reset()
    talk.session.append_chat("Ho")
    assert talk.text == talk.template([user("Ho")])


def test_forks_go_their_own_ways(every: phyla.Engine, ahead: bool) -> None:
    with running(every, ahead=ahead), begun(every) as session:
        one = session.fork()
        one.append_tokens([1, 2, 3])
        two = one.fork()
        two.append_tokens([4])
        session.append_tokens([5])
        three = session.fork()
        paths = {
            one: [*PROMPT, 1, 2, 3], two: [*PROMPT, 1, 2, 3, 4], session: [*PROMPT, 5],
            three: [*PROMPT, 5],
        }  # fmt: skip
        for each, ids in paths.items():
            assert each.tokens == tuple(ids)
            assert_same(each.generate(DRAWN), alone(every, ids, DRAWN))
        two.close()
        one.reset()
        one.append_tokens(PROMPT)
        assert_same(one.generate(DRAWN), alone(every, PROMPT, DRAWN))
        more = session.generate({**DRAWN, "max_tokens": 4})
        assert three.generate({**DRAWN, "max_tokens": 4}).tokens == more.tokens
        one.close()
        three.close()


@pytest.mark.parametrize("name", ["drawn", "penalties", "nucleus"])
def test_forks_in_the_middle_of_a_reply_go_on_with_it(
    every: phyla.Engine, name: str, ahead: bool
) -> None:
    options = {**OPTIONS[name], **ASCII, "logprobs": True, "max_tokens": 6}
    whole = alone(every, PROMPT, {**options, "seed": 9, "max_tokens": 12})
    with running(every, ahead=ahead), begun(every) as session:
        first = session.generate({**options, "seed": 9})
        fork = session.fork()
        fork_of_fork = fork.fork()
        other = session.fork()
        other.append_tokens([3])
        assert_same(other.generate({**options, "seed": 2}),
                    alone(every, [*PROMPT, *first.tokens, 3], {**options, "seed": 2}))  # fmt: skip
        for each in (session, fork, fork_of_fork):
            second = each.generate(options)
            assert_alike([first, second], whole)
            assert second.seed == 9
        for each in (other, fork, fork_of_fork):
            each.close()


def test_a_fork_of_a_conversation_holds_the_conversation(talk: Talking) -> None:
    talk.session.append_chat("Hi")
    talk.says("Yes." + END)
    fork = Talking.__new__(Talking)
    fork.scripted, fork.session = talk.scripted, talk.session.fork()
    fork.session.append_chat("And?")
    talk.session.append_chat("Or?")
    assert fork.text == fork.template([user("Hi"), assistant("Yes."), user("And?")])
    assert talk.text == talk.template([user("Hi"), assistant("Yes."), user("Or?")])
    fork.session.close()


def test_a_fork_of_what_was_cancelled_has_the_same_rest(plain: phyla.Engine) -> None:
    with chunks(plain, 8), plain.session() as session:
        with on_feed(lambda count: session.cancel()), pytest.raises(phyla.CancelledError):
            session.append_tokens(PROMPT)
        with session.fork() as fork:
            assert fork.unread == session.unread
            with pytest.raises(phyla.RequestError, match="unread"):
                fork.generate(DRAWN)
            fork.append_tokens(fork.unread)
            assert_same(fork.generate(DRAWN), alone(plain, PROMPT, DRAWN))
        assert session.position == 8


def test_a_fork_shares_memory_until_one_of_both_goes_on(plain: phyla.Engine) -> None:
    gc.collect()
    with begun(plain, prompt_ids(250)) as session:
        one = strand(session).nbytes
        before = mx.get_active_memory()
        forks = [session.fork() for _ in range(4)]
        for fork in forks:
            plain._machine.call(lambda fork=fork: mx.eval(strand(fork).cursor.layers.arrays))
        assert mx.get_active_memory() - before < one // 2
        for fork in forks:
            fork.append_tokens([1])
            fork.generate({**GREEDY, "max_tokens": 1})
        assert mx.get_active_memory() - before > 2 * one
        for fork in forks:
            fork.close()
        assert mx.get_active_memory() <= before + 64


# Room.


def test_what_does_not_fit_is_refused_with_numbers(every: phyla.Engine) -> None:
    with every.session(max_seq_len=32) as session:
        assert session.max_seq_len == 32
        with pytest.raises(phyla.ContextOverflowError) as caught:
            session.append_tokens(prompt_ids(40))
        assert (caught.value.limit, caught.value.excess) == (32, 8)
        assert_as_before(session, 0, ())
        session.append_tokens(PROMPT)
        for act in (
            lambda: session.append_tokens([1, 2, 3]),
            lambda: session.append_text("abc"),
            lambda: session.append_embeddings(np.zeros((3, strand(session).width))),
        ):
            with pytest.raises(phyla.ContextOverflowError) as caught:
                act()
            assert (caught.value.limit, caught.value.excess) == (32, 1)
            assert_as_before(session, 30, PROMPT)
        with pytest.raises(phyla.ContextOverflowError):
            session.append_chat("abc")
        reply = session.generate({**DRAWN, "max_tokens": 100})
        assert (len(reply.tokens), reply.finish_reason) == (2, "context_full")
        assert reply.tokens == alone(every, PROMPT, DRAWN).tokens[:2]
        assert session.position == 32
        for _ in range(2):
            with pytest.raises(phyla.ContextOverflowError) as caught:
                session.generate(DRAWN)
            assert (caught.value.limit, caught.value.excess) == (32, 1)
        assert_as_before(session, 32, (*PROMPT, *reply.tokens))


def test_a_chat_that_did_not_fit_can_be_shortened(scripted: ScriptedEngine) -> None:
    talk = Talking(scripted, max_seq_len=80)
    with pytest.raises(phyla.ContextOverflowError):
        talk.session.append_chat("Hi" * 60)
    talk.session.append_chat("Hi")
    talk.says("Yes." + END)
    with pytest.raises(phyla.ContextOverflowError):
        talk.session.append_chat("Hi" * 60)
    talk.session.append_chat("Ho")
    assert talk.text == talk.template([user("Hi"), assistant("Yes."), user("Ho")])
    talk.session.close()


def test_max_tokens_that_just_fit_are_the_length(plain: phyla.Engine) -> None:
    with begun(plain, max_seq_len=34) as session:
        assert session.generate({**DRAWN, "max_tokens": 4}).finish_reason == "length"
        assert session.position == 34


# Context shift.


@pytest.fixture(scope="module")
def one_layer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[phyla.Engine]:
    """Of one layer, keys depend on nothing but their token and place."""
    folder = tmp_path_factory.mktemp("one") / "tiny"
    with load(write_checkpoint(folder, {**LLAMA, "num_hidden_layers": 1})) as engine:
        yield engine


@given(
    keep=st.integers(0, 14),
    prompt=st.integers(1, 16),
    counts=st.lists(st.integers(1, 14), min_size=2, max_size=4),
)
@settings(max_examples=8)
def test_a_shifted_session_is_like_one_that_began_with_what_is_left(
    one_layer: phyla.Engine, keep: int, prompt: int, counts: list[int]
) -> None:
    ids = prompt_ids(prompt)
    with one_layer.session(max_seq_len=16, n_keep=keep) as session:
        session.append_tokens(ids)
        said: list[int] = list(ids)
        for count in counts:
            reply = session.generate({**GREEDY, "max_tokens": count})
            assert (len(reply.tokens), reply.finish_reason) == (count, "length")
            said += reply.tokens
            assert session.position <= 16
            assert session.tokens[:keep] == tuple(said[:keep])
            tail = session.tokens[keep:]
            assert tail == tuple(said[len(said) - len(tail) :])
            with session.fork() as fork, begun(one_layer, session.tokens) as fresh:
                last = {**GREEDY, "max_tokens": 1, "top_logprobs": 20}
                found, expected = fork.generate(last), fresh.generate(last)
                assert found.logprobs is not None
                assert expected.logprobs is not None
                assert_close(
                    [value for _, value in found.logprobs[0].top],
                    [value for _, value in expected.logprobs[0].top],
                    tolerance=1e-3,
                )


@pytest.mark.parametrize("name", ["attention", "window"])
def test_a_session_that_shifts_goes_on_and_on_in_bounded_memory(
    name: str, tmp_path: Path, ahead: bool
) -> None:
    with make(tmp_path / "tiny", name) as engine, running(engine, ahead=ahead):
        options = {**DRAWN, **ASCII, **OPTIONS["penalties"]}
        most = engine.machine.loaded.runtime.nbytes(40)
        with begun(engine, max_seq_len=40, n_keep=5) as session:
            replies = []
            for count in (30, 7, 40, 1, 22):
                replies.append(session.generate({**options, "max_tokens": count}))
                assert session.position <= 40
                assert session.tokens[:5] == tuple(PROMPT[:5])
                assert strand(session).nbytes <= most
                assert running_bytes(engine) <= most
            said = [token for reply in replies for token in reply.tokens]
            assert len(said) == 100
            tail = session.tokens[5:]
            assert list(tail) == said[-len(tail) :]
        with begun(engine, max_seq_len=40, n_keep=5) as other:
            whole = other.generate({**options, "max_tokens": 100})
            assert_alike(replies, whole)
            assert other.tokens == (*PROMPT[:5], *tail)


def test_before_it_is_full_a_shifting_session_is_like_any_other(plain: phyla.Engine) -> None:
    whole = alone(plain, PROMPT, {**DRAWN, "max_tokens": 9})
    with begun(plain, max_seq_len=40, n_keep=5) as session:
        assert session.generate({**DRAWN, "max_tokens": 9}).tokens == whole.tokens
        assert session.tokens == (*PROMPT, *whole.tokens)


def test_a_shifting_session_that_is_full_goes_on(plain: phyla.Engine) -> None:
    with begun(plain, prompt_ids(40), max_seq_len=40, n_keep=3) as session:
        with pytest.raises(phyla.ContextOverflowError) as caught:
            session.append_tokens([1])  # what is appended never pushes anything out
        assert caught.value.excess == 1
        assert session.generate(GREEDY).finish_reason == "length"
        assert session.position < 40
        assert session.append_tokens([1]) == session.position


def test_n_keep_warns_where_it_can_do_nothing(every: phyla.Engine) -> None:
    if "Mixed" not in type(every._machine.loaded.runtime.model).__name__:
        every.session(max_seq_len=40, n_keep=4).close()
        return
    with pytest.warns(UserWarning, match="n_keep"):
        session = every.session(max_seq_len=32, n_keep=4)
    session.append_tokens(PROMPT)
    assert session.generate({**GREEDY, "max_tokens": 9}).finish_reason == "context_full"
    session.close()


# Errors.


WRONG: dict[str, tuple[Callable[[Session], object], type[phyla.PhylaError]]] = {
    "no tokens": (lambda s: s.append_tokens([]), phyla.EmptyInputError),
    "no text": (lambda s: s.append_text(""), phyla.EmptyInputError),
    "no messages": (lambda s: s.append_chat([]), phyla.EmptyInputError),
    "no embeddings": (lambda s: s.append_embeddings(np.zeros((0, 32))), phyla.RequestError),
    "a high id": (lambda s: s.append_tokens([1, 288]), phyla.RequestError),
    "a negative id": (lambda s: s.append_tokens([-1]), phyla.RequestError),
    "a float id": (lambda s: s.append_tokens([1.5]), phyla.RequestError),  # pyright: ignore[reportArgumentType]
    "a boolean id": (lambda s: s.append_tokens([True]), phyla.RequestError),
    "ids of text": (lambda s: s.append_tokens("ab"), phyla.RequestError),  # pyright: ignore[reportArgumentType]
    "an id alone": (lambda s: s.append_tokens(3), phyla.RequestError),  # pyright: ignore[reportArgumentType]
    "bytes": (lambda s: s.append_text(b"a"), phyla.RequestError),  # pyright: ignore[reportArgumentType]
    "half a character": (lambda s: s.append_text("\ud800"), phyla.RequestError),
    "special tokens, maybe": (
        lambda s: s.append_text("a", add_special_tokens="no"),  # pyright: ignore[reportArgumentType]
        phyla.RequestError,
    ),
    "a vector": (lambda s: s.append_embeddings(np.zeros(32)), phyla.RequestError),
    "a batch": (lambda s: s.append_embeddings(np.zeros((1, 1, 32))), phyla.RequestError),
    "another width": (lambda s: s.append_embeddings(mx.zeros((2, 31))), phyla.RequestError),
    "ragged": (lambda s: s.append_embeddings([[1.0], [1.0, 2.0]]), phyla.RequestError),  # pyright: ignore[reportArgumentType]
    "words": (lambda s: s.append_embeddings([["a"] * 32]), phyla.RequestError),  # pyright: ignore[reportArgumentType]
    "nothing": (lambda s: s.append_embeddings(None), phyla.RequestError),  # pyright: ignore[reportArgumentType]
    "complex": (lambda s: s.append_embeddings(np.zeros((1, 32), complex)), phyla.RequestError),
    "complex in mlx": (
        lambda s: s.append_embeddings(mx.zeros((1, 32), mx.complex64)), phyla.RequestError
    ),
    "not a number": (
        lambda s: s.append_embeddings(np.full((1, 32), math.nan)), phyla.RequestError
    ),
    "a message of another role": (
        lambda s: s.append_chat([{"role": "oracle", "content": ""}]), phyla.RequestError
    ),
    "a number for messages": (lambda s: s.append_chat(3), phyla.RequestError),  # pyright: ignore[reportArgumentType]
    "a tool without a name": (lambda s: s.append_chat("a", tools=[{}]), phyla.RequestError),
    "an effort": (lambda s: s.append_chat("a", thinking="enormous"), phyla.RequestError),
    "an image": (lambda s: s.append_image("cat.png"), phyla.UnsupportedModalityError),
    "sound": (lambda s: s.append_audio(b""), phyla.UnsupportedModalityError),
    "a film": (lambda s: s.append_video(b""), phyla.UnsupportedModalityError),
    "an unknown option": (lambda s: s.generate({"temprature": 1}), phyla.RequestError),
    "a negative temperature": (lambda s: s.generate({"temperature": -1}), phyla.RequestError),
    "no tokens wanted": (lambda s: s.stream({"max_tokens": 0}), phyla.RequestError),
    "a bias beyond": (lambda s: s.stream({"logit_bias": {400: 1.0}}), phyla.RequestError),
    "options of another kind": (lambda s: s.generate(4), phyla.RequestError),  # pyright: ignore[reportArgumentType]
    "flush": (lambda s: s.generate(flush_tokens=0), phyla.RequestError),
    "flush time": (lambda s: s.stream(flush_seconds=-1), phyla.RequestError),
    "a sink that is none": (lambda s: s.generate(sink=3), phyla.RequestError),  # pyright: ignore[reportArgumentType]
}  # fmt: skip


def test_whatever_is_wrong_is_said_and_changes_nothing(plain: phyla.Engine, ahead: bool) -> None:
    options = {**DRAWN, **ASCII, "logprobs": True}
    whole = alone(plain, PROMPT, {**options, "max_tokens": 8 + len(WRONG)})
    with running(plain, ahead=ahead), begun(plain) as session:
        parts = [session.generate(options)]
        for name, (act, kind) in WRONG.items():
            before = session.tokens
            with pytest.raises(phyla.PhylaError) as caught:
                act(session)
            assert isinstance(caught.value, kind), name
            assert caught.value.fault == "request", name
            assert_as_before(session, len(before), before)
            parts.append(session.generate({**options, "seed": None, "max_tokens": 1}))
        assert_alike(parts, whole)


def test_an_empty_session_has_nothing_to_go_on_from(plain: phyla.Engine) -> None:
    with plain.session() as session:
        for act in (session.generate, session.stream):
            with pytest.raises(phyla.EmptyInputError):
                act(GREEDY)
        session.append_tokens(PROMPT)
        assert_same(session.generate(DRAWN), alone(plain, PROMPT, DRAWN))


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_seq_len": 0}, {"max_seq_len": 513}, {"max_seq_len": True}, {"max_seq_len": "9"},
        {"n_keep": -1}, {"n_keep": 511}, {"n_keep": True}, {"n_keep": 1.0},
        {"n_keep": 9, "max_seq_len": 10}, {"options": {"top_p": 2}},
        {"options": {"stop_token_ids": (400,)}}, {"options": 3},
    ],
)  # fmt: skip
def test_a_session_cannot_be_made_of_anything(plain: phyla.Engine, wrong: Any) -> None:
    before = running_bytes(plain)
    with pytest.raises(phyla.RequestError):
        plain.session(**wrong)
    assert running_bytes(plain) == before


def test_a_sessions_own_options_are_its_defaults(plain: phyla.Engine) -> None:
    options = {**DRAWN, **ASCII}
    whole = alone(plain, PROMPT, options)
    with begun(plain, options=options) as session:
        first = session.generate({"max_tokens": 3})
        assert_alike([first, session.generate({"max_tokens": 5})], whole)


def test_memory_that_is_not_there_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    with make(tmp_path / "tiny", "attention") as big:
        whole = alone(big, PROMPT, {**DRAWN, **ASCII, "max_tokens": 16})
        limit = big._machine.loaded.runtime.nbytes(256)
    with load(tmp_path / "tiny", memory_limit=limit) as engine, begun(engine) as session:
        first = session.generate({**DRAWN, **ASCII})
        with pytest.raises(phyla.MemoryLimitError):
            session.append_tokens(prompt_ids(300))
        with pytest.raises(phyla.MemoryLimitError):
            session.append_chat("a" * 300)
        with pytest.raises(phyla.MemoryLimitError):
            session.append_embeddings(np.zeros((300, 32)))
        with pytest.raises(phyla.MemoryLimitError):
            session.generate({**DRAWN, "seed": 5, "max_tokens": 300})
        assert_as_before(session, 38, (*PROMPT, *first.tokens))
        second = session.generate({**DRAWN, **ASCII, "seed": None})
        assert_alike([first, second], whole)


# Failures.


@contextmanager
def failing(at: int) -> Iterator[None]:
    """The attention of one layer fails, when others have their keys already."""
    attend = FullCache.attend
    calls = 0

    def attending(self: FullCache, *arrays: mx.array, **more: Any) -> mx.array:
        nonlocal calls
        calls += 1
        if calls == at:
            raise RuntimeError("a layer's own trouble")
        return attend(self, *arrays, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FullCache, "attend", attending)
        yield


@pytest.mark.parametrize("at", [1, 2, 5])
def test_an_append_that_fails_leaves_the_session_as_it_was(every: phyla.Engine, at: int) -> None:
    whole = alone(every, [*PROMPT, 1, 2, 3], DRAWN)
    with chunks(every, 3), begun(every) as session:
        first = session.generate({**DRAWN, "seed": 1, "max_tokens": 3})
        before = session.tokens
        for act in (
            lambda: session.append_tokens(prompt_ids(20)),
            lambda: session.append_chat("Well?"),
            lambda: session.append_embeddings(embeddings(every, prompt_ids(20))),
        ):
            with failing(at), pytest.raises(RuntimeError, match="own trouble"):
                act()
            assert_as_before(session, 33, before)
        goes_on = session.generate({**DRAWN, "seed": None, "max_tokens": 2})
        assert_alike([first, goes_on], alone(every, PROMPT, {**DRAWN, "seed": 1, "max_tokens": 5}))
        session.reset()
        with failing(at), pytest.raises(RuntimeError, match="own trouble"):
            session.append_tokens(PROMPT)
        assert_as_before(session, 0, ())
        session.append_tokens([*PROMPT, 1, 2, 3])
        assert_same(session.generate(DRAWN), whole)


@pytest.mark.parametrize("at", [1, 2, 6])
def test_a_reply_that_fails_keeps_what_was_said(every: phyla.Engine, at: int, ahead: bool) -> None:
    whole = alone(every, PROMPT, DRAWN)
    with running(every, ahead=ahead), begun(every) as session:
        with failing(at), pytest.raises(RuntimeError, match="own trouble"):
            session.generate(DRAWN)
        count = session.position - 30
        assert session.tokens == (*PROMPT, *whole.tokens[:count])
        with session.fork() as fork:
            rest = fork.generate({**DRAWN, "max_tokens": 8 - count})
            assert rest.tokens == whole.tokens[count:]
        session.append_tokens([1])
        ids = [*PROMPT, *whole.tokens[:count], 1]
        assert_same(session.generate(DRAWN), alone(every, ids, DRAWN))


# Handing out.


def test_text_is_handed_out_in_pieces_of_so_many_tokens(plain: phyla.Engine) -> None:
    options = {**DRAWN, **ASCII, "max_tokens": 10, "logprobs": True}
    whole = alone(plain, PROMPT, options)
    with begun(plain) as session:
        events = list(session.stream(options, flush_tokens=4))
    pieces = [event for event in events if isinstance(event, phyla.TextDelta)]
    assert [piece.text for piece in pieces] == [whole.text[:4], whole.text[4:8], whole.text[8:]]
    assert [len(piece.logprobs) for piece in pieces] == [4, 4, 2]
    assert events[-1].kind == "finished"


def test_text_is_handed_out_after_some_time(
    plain: phyla.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from phyla.engine import flush

    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 0.25  # asked once with each token, and once when something is handed out
        return now

    monkeypatch.setattr(flush.Flush.__init__, "__kwdefaults__",
                        {"tokens": 1, "seconds": None, "clock": clock})  # fmt: skip
    options = {**DRAWN, **ASCII, "max_tokens": 10}
    whole = alone(plain, PROMPT, options)
    with begun(plain) as session:
        events = list(session.stream(options, flush_tokens=100, flush_seconds=1.0))
    texts = [event.text for event in events if isinstance(event, phyla.TextDelta)]
    assert texts == [whole.text[:4], whole.text[4:8], whole.text[8:]]


def test_reasoning_is_not_withheld_for_text(talk: Talking) -> None:
    talk.session.append_chat("Hi")
    talk.prepare(THOUGHT + END)
    events = list(talk.session.stream({"temperature": 0}, flush_tokens=1000))
    kinds = [event.kind for event in events]
    assert kinds.count("reasoning") > 3
    assert kinds[-2:] == ["text", "finished"]
    assert kinds.count("text") == 1


# Memory.


@pytest.mark.parametrize("name", list(CONFIGS))
def test_memory_comes_back(name: str, tmp_path: Path) -> None:
    with make(tmp_path / "tiny", name) as engine:

        def use() -> list[Session]:
            session = begun(engine, prompt_ids(300))
            session.generate(DRAWN)
            fork = session.fork()
            fork.generate(DRAWN)
            fork.append_tokens([1])
            assert running_bytes(engine) >= strand(session).nbytes + strand(fork).nbytes > 0
            return [session, fork, session.fork()]

        for first in use():  # whatever is made once is made now
            first.close()
        gc.collect()
        before = mx.get_active_memory()
        assert running_bytes(engine) == 0
        kept = use()
        for closed in kept:
            closed.close()
            closed.close()
        assert running_bytes(engine) == 0
        assert mx.get_active_memory() <= before + 64
        kept += use()
        kept[:] = kept[:3]
        gc.collect()
        assert running_bytes(engine) == 0
        assert mx.get_active_memory() <= before + 64
        for emptied in use():
            emptied.reset()
            assert emptied.position == 0
        assert mx.get_active_memory() <= before + 1024  # states that are nought
        assert len(kept) == 3


def test_a_dropped_session_needs_no_collector(plain: phyla.Engine) -> None:
    gc.collect()
    running_bytes(plain)
    before = mx.get_active_memory(), running_bytes(plain)
    gc.disable()
    try:
        session = begun(plain)
        session.generate(DRAWN)
        session.generate(DRAWN)
        assert mx.get_active_memory() > before[0]
        del session
        assert running_bytes(plain) == before[1]
        assert mx.get_active_memory() <= before[0] + 64
    finally:
        gc.enable()


def test_a_closed_session_is_of_no_use(plain: phyla.Engine) -> None:
    session = begun(plain)
    other = session.fork()
    session.close()
    assert_busy(session, "closed")
    assert session.position == 0
    session.cancel()
    session.clear_cancel()
    session.close()
    assert_busy(session, "closed")
    assert_same(other.generate(DRAWN), alone(plain, PROMPT, DRAWN))
    other.close()


def test_a_closed_session_keeps_no_model(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "tiny", LLAMA)
    gc.collect()
    before = mx.get_active_memory()
    engine = phyla.load(folder)
    session, other = begun(engine), begun(engine)
    session.generate(DRAWN)
    session.close()
    engine.close()
    other.close()
    assert mx.get_active_memory() <= before + 64
    assert (session.position, other.tokens, other.max_seq_len) == (0, (), 512)


def test_closing_a_session_cancels_what_it_does(plain: phyla.Engine) -> None:
    session = begun(plain)
    stream = session.stream({**DRAWN, "max_tokens": None})
    next(stream)
    session.close()
    assert stream.result().finish_reason in ("cancelled", "context_full")
    assert session.position == 0


def test_a_session_of_a_closed_engine_is_of_no_use(tmp_path: Path) -> None:
    engine = make(tmp_path / "tiny", "attention")
    session, idle = begun(engine), engine.session()
    with held_up(engine):
        stream = session.stream({**DRAWN, "max_tokens": None})
        threading.Thread(target=engine.close).start()
        assert engine.machine.closing.wait(60)
    assert stream.result().finish_reason == "cancelled"
    engine.close()
    for each in (session, idle):
        assert_busy(each, "closed")
        each.cancel()
        each.clear_cancel()
        assert_busy(each, "closed")
    with pytest.raises(phyla.BusyError, match="closed"):
        engine.session()
    session.close()
    assert_busy(session, "closed")
    idle.close()


def test_a_session_keeps_its_engine(tmp_path: Path) -> None:
    session = begun(make(tmp_path / "tiny", "attention"))
    gc.collect()
    assert len(session.generate(DRAWN).tokens) == 8
    session.close()


# In company.


def test_sessions_and_chats_together_are_each_as_if_alone(every: phyla.Engine, ahead: bool) -> None:
    prompts = [prompt_ids(10 + 7 * seed, seed=seed) for seed in range(7)]
    wishes = [{**DRAWN, **OPTIONS[name], "seed": 3, "max_tokens": 5 + place}
              for place, name in enumerate(OPTIONS)]  # fmt: skip
    expected = [alone(every, ids, wish) for ids, wish in zip(prompts, wishes, strict=True)]
    with running(every, ahead=ahead), chunks(every, 8):
        sessions = [begun(every, ids) for ids in prompts[:4]]
        late = every.session()
        with held_up(every):
            streams = [
                session.stream(wish) for session, wish in zip(sessions, wishes, strict=False)
            ]
            streams += [
                every.stream(phyla.Prompt(ids=tuple(ids)), options=wish, prompt_cache=False)
                for ids, wish in zip(prompts[4:], wishes[4:], strict=True)
            ]
            thread = threading.Thread(target=lambda: late.append_tokens(PROMPT))
            thread.start()
        for stream, one in zip(streams, expected, strict=True):
            assert stream.result().tokens == one.tokens
        thread.join()
        assert_same(late.generate(DRAWN), alone(every, PROMPT, DRAWN))
        for session in (*sessions, late):
            session.close()


@given(data=st.data())
@settings(max_examples=12)
def test_whatever_was_done_to_a_session_its_tokens_tell_what_it_says(
    every: phyla.Engine, data: st.DataObject
) -> None:
    options = {**DRAWN, "seed": None}
    values = {0: prompt_ids(20), 1: prompt_ids(20, seed=1)}
    with chunks(every, 4):
        sessions = [every.session()]
        ids: dict[Session, list[int]] = {sessions[0]: []}
        for _ in range(data.draw(st.integers(1, 7))):
            session = data.draw(st.sampled_from(sessions))
            held = ids[session]
            match data.draw(st.sampled_from("aatteegfrc")):
                case "a":
                    new = values[data.draw(st.integers(0, 1))][: data.draw(st.integers(1, 20))]
                    session.append_tokens(new)
                    held += new
                case "t":
                    text = data.draw(st.text(min_size=1, max_size=6))
                    session.append_text(text)
                    held += list(text.encode())
                case "e":
                    new = values[1][: data.draw(st.integers(1, 9))]
                    session.append_embeddings(embeddings(every, new))
                    held += new
                case "g" if held:
                    wish = {**options, "max_tokens": data.draw(st.integers(1, 6))}
                    held += session.generate(wish).tokens
                case "f" if len(sessions) < 3:
                    other = session.fork()
                    sessions.append(other)
                    ids[other] = list(held)
                case "r":
                    session.reset()
                    held.clear()
                case "c":
                    stop = data.draw(st.integers(0, 5))
                    new = values[0]
                    with (
                        on_feed(lambda count, at=stop, s=session: count < at or s.cancel()),
                        suppress(phyla.CancelledError),
                    ):
                        session.append_tokens(new)
                    session.clear_cancel()
                    if session.unread:
                        session.append_tokens(session.unread)
                    held += new
                case _:
                    pass
            assert session.position == len(held)
        for session, held in ids.items():
            if held:
                session.append_tokens([7])
                assert session.generate(DRAWN).tokens == alone(every, [*held, 7], DRAWN).tokens
            session.close()


# Stop texts at the border of two calls.


def test_a_session_goes_on_after_a_stop_text(scripted: ScriptedEngine) -> None:
    said = scripted.ids("One. Two. Three." + END)
    with scripted.engine.session() as session:
        session.append_text("Count")
        scripted._script.write(session.position, said)
        options = {"stop": ". ", "temperature": 0, "max_tokens": 40}
        texts = [session.generate(options).text for _ in range(3)]
    assert texts == ["One", "Two", "Three."]


def test_what_an_old_stop_text_withheld_is_told_and_a_new_one_looks_at_new_text_only(
    scripted: ScriptedEngine,
) -> None:
    said = scripted.ids("ab{tcdab!" + END)
    with scripted.engine.session() as session:
        session.append_text("Go")
        scripted._script.write(session.position, said)
        first = session.generate({"stop": "{tx", "temperature": 0, "max_tokens": 4})
        assert first.text == "ab"
        second = session.generate({"stop": "ab", "temperature": 0, "max_tokens": 20})
        assert second.text == "{tcd"


def test_observers_hear_of_a_sessions_replies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[phyla.Reply] = []

    class Listening:
        def finished(self, reply: phyla.Reply) -> None:
            heard.append(reply)

    registry = mixed_registry()
    monkeypatch.setattr(type(registry), "observers", lambda self: (Listening(),))
    folder = write_checkpoint(tmp_path / "tiny", mixed("f"), registry=registry)
    with load(folder, registry=registry) as engine, engine.session() as session:
        session.append_text("hello")
        reply = session.generate({"max_tokens": 2})
        session.append_text("more")
        assert heard == [reply]


def test_closing_the_engine_frees_the_model_though_a_session_lives(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "tiny", LLAMA)
    gc.collect()
    before = mx.get_active_memory()
    engine = load(folder)
    session = engine.session()
    session.append_text("hello")
    engine.close()
    assert mx.get_active_memory() <= before + 64
    with pytest.raises(phyla.BusyError):
        session.append_text("more")
    session.close()
