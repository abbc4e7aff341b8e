"""An engine's life: what keeps it, what ends it, and what a failure in its company may harm."""

from __future__ import annotations

import asyncio
import gc
from datetime import datetime
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import pytest

import phyla
from phyla.engine.engine import load
from phyla.hooks import AnswerOnly
from phyla.registry import discover
from phyla.testing import write_checkpoint

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CONFIG: dict[str, Any] = {
    "model_type": "llama", "vocab_size": 300, "hidden_size": 32, "intermediate_size": 48,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "max_position_embeddings": 512, "rope_theta": 10000.0,
}  # fmt: skip
LONG = {"max_tokens": 200, "ignore_eos": True, "seed": 3, "temperature": 1.5}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("tiny") / "llama", CONFIG)


@pytest.fixture
def engine(folder: Path) -> Iterator[phyla.Engine]:
    with phyla.load(folder) as made:
        yield made


def test_a_stream_keeps_its_engine_alive(folder: Path) -> None:
    stream = phyla.load(folder).stream("hi", options=LONG)
    gc.collect()
    assert stream.result().finish_reason == "length"


def test_a_dropped_engine_leaves_no_memory_behind_and_needs_no_collector(folder: Path) -> None:
    gc.collect()
    gc.disable()
    try:
        before = mx.get_active_memory()
        engine = phyla.load(folder)
        assert mx.get_active_memory() > before
        del engine
        assert mx.get_active_memory() <= before + 64
    finally:
        gc.enable()


def test_closing_frees_the_model_and_keeps_what_is_known(folder: Path) -> None:
    before = mx.get_active_memory()
    engine = phyla.load(folder)
    engine.close()
    engine.close()
    assert mx.get_active_memory() <= before + 64
    assert engine.context == 512
    with pytest.raises(phyla.BusyError, match="closed"):
        engine.chat("hi")


def test_closing_cancels_what_runs(folder: Path) -> None:
    engine = phyla.load(folder, max_context=100_000)
    stream = engine.stream("hi", options={**LONG, "max_tokens": None})
    engine.close()
    assert stream.result().finish_reason == "cancelled"


class Failing:
    def __init__(self) -> None:
        self.calls = 0

    def finished(self, reply: phyla.Reply) -> None:
        self.calls += 1
        raise ValueError("an observer's own trouble")


class Watching(Failing):
    def finished(self, reply: phyla.Reply) -> None:
        self.calls += 1


def test_an_observer_that_fails_is_set_aside_and_the_reply_arrives(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing, watching = Failing(), Watching()
    registry = discover()
    monkeypatch.setattr(type(registry), "observers", lambda self: (failing, watching))
    with load(folder, registry=registry) as engine:
        for _ in range(2):
            assert engine.chat("hi", options={"max_tokens": 2}).tokens
        engine.trace([1])  # the observers of the replies before were told by now
    assert (failing.calls, watching.calls) == (1, 2)


@pytest.mark.parametrize("answer_only", [False, True])
@pytest.mark.parametrize("result", [None, "raise", [1.0]])
def test_a_processor_that_breaks_its_contract_is_its_plugins_fault(
    folder: Path, result: object, answer_only: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def process(tokens: object, logits: mx.array) -> object:
        if result == "raise":
            raise KeyError("x")
        return result

    registry = discover()
    chosen: Any = AnswerOnly(process) if answer_only else process  # pyright: ignore[reportArgumentType]
    monkeypatch.setattr(type(registry), "logits_processors", lambda self, options: (chosen,))
    with load(folder, registry=registry) as engine:
        with pytest.raises(phyla.PluginError, match="logits processor"):
            engine.chat("hi", options={"max_tokens": 2})
        monkeypatch.undo()
        assert engine.chat("hi", options={"max_tokens": 2}).tokens


def test_an_event_loop_that_ended_does_not_harm_the_reply(engine: phyla.Engine) -> None:
    stream = engine.stream("hi", options=LONG)

    async def one() -> None:
        await anext(stream)

    asyncio.run(one())
    assert stream.result().finish_reason == "length"


def test_several_async_readers_of_one_stream_all_end(engine: phyla.Engine) -> None:
    async def count(stream: phyla.Stream) -> int:
        return len([event async for event in stream])

    async def both() -> int:
        async with engine.stream("hi", options=LONG) as stream:
            return sum(await asyncio.gather(count(stream), count(stream)))

    assert asyncio.run(both()) > 0


def test_a_closed_stream_has_nothing_more_to_read_but_its_end(engine: phyla.Engine) -> None:
    with engine.stream("hi", options=LONG) as stream:
        next(stream)
    kinds = [event.kind for event in stream]
    assert kinds == ["finished"]


@pytest.mark.parametrize("wrong", [0, -5, "x", 1.5, True])
def test_a_context_that_is_no_positive_number_is_refused(folder: Path, wrong: Any) -> None:
    with pytest.raises(phyla.RequestError, match="max_context"):
        phyla.load(folder, max_context=wrong)


def test_an_encoded_prompt_takes_no_second_word_on_tools(engine: phyla.Engine) -> None:
    prompt = engine.encode("hi")
    with pytest.raises(phyla.RequestError, match="encoded"):
        engine.stream(prompt, tool_choice="required")


def test_the_clock_of_templates_can_be_set(tmp_path: Path) -> None:
    template = "{{ strftime_now('%Y') }}{{ messages[0].content }}"
    folder = write_checkpoint(tmp_path / "dated", CONFIG, chat_template=template)
    with phyla.load(folder, clock=lambda: datetime(1999, 1, 1)) as engine:
        assert engine.encode("!").text == "1999!"
