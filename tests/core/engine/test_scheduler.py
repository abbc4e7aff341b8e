"""Many requests at once: what each is told, who waits for whom, and what a failure may harm."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import phyla
from phyla.backend import BlasThreads
from phyla.engine import generation, prefill, scheduler
from phyla.engine.answer import Answer
from phyla.engine.engine import Engine, load
from phyla.engine.generation import Generation
from phyla.prompt import Prompt
from phyla.testing import prompt_ids, write_checkpoint
from phyla.testing.mixed import mixed, mixed_registry

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from phyla.engine.scheduler import Scheduler

GREEDY: Mapping[str, Any] = {"temperature": 0, "max_tokens": 6, "ignore_eos": True}
ENDLESS: Mapping[str, Any] = {"seed": 1, "max_tokens": None, "ignore_eos": True}
REGISTRY = mixed_registry()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny") / "mixed"
    return write_checkpoint(path, mixed("rwfm"), registry=REGISTRY)


@pytest.fixture
def engine(folder: Path) -> Iterator[Engine]:
    with opened(folder) as engine:
        yield engine


def opened(folder: Path, **more: Any) -> Engine:
    return load(folder, registry=REGISTRY, dtype="float32", **more)


def scheduler_of(engine: Engine) -> Scheduler:
    return engine.machine.loaded.scheduler


def prompt(count: int, seed: int = 0) -> Prompt:
    return Prompt(ids=tuple(prompt_ids(count, seed=seed)))


def test_bug_54_a_cancel_ends_a_long_prompt_within_one_chunk_and_keeps_what_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_checkpoint(tmp_path / "tiny", mixed("wf"), registry=REGISTRY)
    with opened(folder, max_context=5000) as engine:
        long = prompt(4000)
        streams: list[phyla.Stream] = []
        original = scheduler.step_together
        steps: list[int] = []

        def step(prefills: list[prefill.Prefill], count: int) -> None:
            original(prefills, count)
            steps.append(prefills[0].cursor.length)
            if len(steps) == 2:
                streams[0].cancel()

        monkeypatch.setattr(scheduler, "step_together", step)
        # The first chunk is only read once the stream is there to be cancelled.
        engine.machine.call(lambda: streams.append(engine.stream(long, options=ENDLESS)))
        reply = streams[0].result()
        assert reply.finish_reason == "cancelled"
        assert reply.tokens == ()
        assert len(steps) == 2
        monkeypatch.undo()
        found = engine.generate(long, options=GREEDY)
        assert found.usage.cached_tokens == steps[1]
        assert found.tokens == engine.generate(long, options=GREEDY, prompt_cache=False).tokens


def test_one_reply_leaves_a_core_free_and_a_prompt_or_a_batch_uses_all(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []
    monkeypatch.setattr(scheduler, "blas_threads", lambda: BlasThreads(2, 2, told.append))
    with opened(folder) as engine:
        engine.generate(prompt(4), options=GREEDY)
        engine.machine.call(lambda: None)  # the reply arrives before its round ends
        assert told == [1, 2]
        told.clear()
        several = engine.machine.call(
            lambda: [engine.stream(prompt(4, seed), options=GREEDY) for seed in (1, 2)]
        )
        assert [len(stream.result().tokens) for stream in several] == [6, 6]
        assert told == []


def test_a_request_that_waits_can_be_cancelled(folder: Path) -> None:
    with opened(folder, memory_limit=400_000) as engine:
        first = engine.stream(prompt(1500), options={**ENDLESS, "max_tokens": 500})
        second = engine.stream(prompt(1500, seed=1), options=ENDLESS)
        second.cancel()
        assert second.result().finish_reason == "cancelled"
        first.cancel()
        assert first.result().finish_reason == "cancelled"


def test_what_can_never_fit_is_refused_with_numbers(folder: Path) -> None:
    with opened(folder, memory_limit=200_000) as engine:
        with pytest.raises(phyla.MemoryLimitError) as caught:
            engine.generate(prompt(3900), options=GREEDY)
        assert caught.value.limit == 200_000
        assert caught.value.needed > 200_000
        assert engine.generate(prompt(20), options=GREEDY).tokens


def test_requests_that_do_not_fit_together_wait_for_one_another(folder: Path) -> None:
    with opened(folder) as engine:
        alone = [engine.generate(prompt(900, seed=n), options=GREEDY).tokens for n in range(3)]
        needed = engine.machine.loaded.runtime.nbytes(1024)
    with opened(folder, memory_limit=2 * needed) as engine:
        peak: list[int] = []
        scheduler = scheduler_of(engine)
        tick = scheduler.tick

        def watched() -> bool:
            more = tick()
            peak.append(scheduler.running + engine.machine.loaded.pool.nbytes)
            return more

        engine.machine._worker.set_tick(watched)
        streams = [engine.stream(prompt(900, seed=n), options=GREEDY) for n in range(3)]
        assert [stream.result().tokens for stream in streams] == alone
        assert max(peak) <= engine.memory_limit


def test_a_reply_that_outgrows_its_share_sets_the_latest_back_and_loses_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"seed": 2, "temperature": 1.2, "ignore_eos": True, "max_tokens": 70}
    prompts = [prompt(200, seed=n) for n in range(3)]
    set_back: list[Generation] = []
    suspend = Generation.suspend

    def watched(self: Generation) -> None:
        set_back.append(self)
        suspend(self)

    monkeypatch.setattr(Generation, "suspend", watched)
    monkeypatch.setattr(generation, "_REPLY", 16)
    with opened(folder) as engine:
        alone = [engine.generate(each, options=options).tokens for each in prompts]
        assert not set_back
        runtime = engine.machine.loaded.runtime
    # Room for all as long as they are short, and later for one and a half.
    snapshots = 3 * runtime.allocation.snapshot_nbytes
    memory = 3 * runtime.nbytes(256) + snapshots
    assert memory < 2 * runtime.nbytes(512)
    with opened(folder, memory_limit=memory) as engine:
        streams = [engine.stream(each, options=options) for each in prompts]
        assert [stream.result().tokens for stream in streams] == alone
    assert set_back


def test_a_context_larger_than_memory_ends_the_reply_and_not_the_engine(folder: Path) -> None:
    with opened(folder, memory_limit=120_000) as engine:
        reply = engine.generate(prompt(10), options=ENDLESS)
        assert reply.finish_reason == "context_full"
        assert engine.machine.loaded.runtime.nbytes(10 + len(reply.tokens)) <= 120_000


def test_what_is_in_the_background_is_read_last(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[int] = []
    original = Generation.begin

    def begin(self: Generation) -> None:
        begun.append(len(self._request.prompt.ids))
        original(self)

    monkeypatch.setattr(Generation, "begin", begin)
    streams: list[phyla.Stream] = []

    def all_at_once() -> None:
        for count, priority in ((30, "background"), (31, "interactive"), (32, "interactive")):
            streams.append(
                engine.stream(prompt(count), options=GREEDY, priority=priority)  # pyright: ignore[reportArgumentType]
            )

    engine.machine.call(all_at_once)
    for stream in streams:
        stream.result()
    assert begun == [31, 32, 30]


@pytest.mark.parametrize("priority", ["urgent", None, 3])
def test_an_unknown_priority_is_refused(engine: Engine, priority: Any) -> None:
    with pytest.raises(phyla.RequestError, match="priority"):
        engine.chat("hi", priority=priority)


def test_a_request_that_fails_harms_no_other(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = [engine.generate(prompt(30, seed=n), options=GREEDY).tokens for n in range(3)]
    original = Answer.add
    failing: list[Answer] = []

    def add(self: Answer, sampled: Any) -> bool:
        if not failing and len(self._prompt.ids) == 33:
            failing.append(self)
            raise ValueError("something of this request only")
        return original(self, sampled)

    monkeypatch.setattr(Answer, "add", add)
    streams = [engine.stream(prompt(30, seed=n), options=GREEDY) for n in range(3)]
    broken = engine.stream(prompt(33), options=GREEDY)
    with pytest.raises(ValueError, match="this request only"):
        broken.result()
    assert [stream.result().tokens for stream in streams] == alone
    assert engine.generate(prompt(33), options=GREEDY).tokens


def test_what_a_request_read_before_it_failed_is_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_checkpoint(tmp_path / "tiny", mixed("f"), registry=REGISTRY)
    original = Answer.add

    def add(self: Answer, sampled: Any) -> bool:
        ended = original(self, sampled)
        if len(self.tokens) == 4:
            raise ValueError("in the middle")
        return ended

    with opened(folder) as engine:
        whole = engine.generate(prompt(40), options=GREEDY, prompt_cache=False).tokens
        monkeypatch.setattr(Answer, "add", add)
        with pytest.raises(ValueError, match="in the middle"):
            engine.generate(prompt(40), options=GREEDY)
        monkeypatch.undo()
        # The fourth token was never fed, and what was built to feed it is taken back.
        again = Prompt(ids=(*prompt(40).ids, *whole[:4]))
        reply = engine.generate(again, options=GREEDY)
        assert reply.usage.cached_tokens == 43
        assert reply.tokens[:2] == whole[4:]


def test_a_step_that_fails_fails_its_requests_and_the_engine_goes_on(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any, **more: Any) -> Any:
        raise RuntimeError("out of memory, say")

    monkeypatch.setattr(scheduler, "step", broken)
    stream = engine.stream("hi", options=GREEDY)
    with pytest.raises(RuntimeError, match="out of memory"):
        stream.result()
    monkeypatch.undo()
    assert engine.chat("hi", options=GREEDY).tokens
    assert scheduler_of(engine).running == 0


def test_dropping_a_stream_cancels_its_request(engine: Engine) -> None:
    stream = engine.stream("hi", options=ENDLESS)
    next(stream)
    del stream
    engine.chat("a request that waits for nobody", options=GREEDY)
    while scheduler_of(engine).running:
        engine.chat("hi", options=GREEDY)


def test_150_turns_stay_below_a_cap(folder: Path) -> None:
    with opened(folder) as engine:
        cap = 2 * engine.machine.loaded.runtime.nbytes(512)
    with opened(folder, memory_limit=cap, max_context=600) as engine:
        scheduler, pool = scheduler_of(engine), engine.machine.loaded.pool
        tick = scheduler.tick
        most = 0

        def watched() -> bool:
            nonlocal most
            more = tick()
            most = max(most, scheduler.running + pool.nbytes)
            return more

        engine.machine._worker.set_tick(watched)
        ids: list[int] = []
        for turn in range(150):
            if len(ids) > 250:
                ids = []
            ids += prompt_ids(9, seed=turn)
            reply = engine.generate(ids, options={**GREEDY, "max_tokens": 2})
            ids += reply.tokens
        assert engine.cache.stats().evictions > 0
        assert 0 < most <= cap
        engine.cache.clear()
        assert engine.memory_used == 0


# Everything at random.

OPTIONS: tuple[Mapping[str, Any], ...] = (
    {"temperature": 0, "max_tokens": 12},
    {"temperature": 1.4, "seed": 5, "max_tokens": 20},
    {"temperature": 1.0, "seed": 6, "max_tokens": 9, "top_p": 0.8},
    {"temperature": 1.0, "seed": 7, "max_tokens": 15, "repetition_penalty": 1.4, "top_k": 20},
    {"temperature": 1.2, "seed": 8, "max_tokens": 16, "stop": ("a", "e", "\n")},
    {"temperature": 0.9, "seed": 9, "max_tokens": 8, "logprobs": True, "top_logprobs": 2},
)


class Crowd(RuleBasedStateMachine):
    """Up to 16 requests that come, go and are cancelled: each is answered as if it were alone."""

    folder: Path
    most = 16

    @initialize()
    def start(self) -> None:
        self.engine = opened(self.folder)
        self.running: list[tuple[phyla.Stream, tuple[int, int, int]]] = []
        self.cancelled: list[tuple[phyla.Stream, tuple[int, int, int]]] = []
        self.alone: dict[tuple[int, int, int], phyla.Reply] = {}

    @rule(count=st.integers(1, 120), seed=st.integers(0, 2), kind=st.integers(0, len(OPTIONS) - 1))
    def ask(self, count: int, seed: int, kind: int) -> None:
        if len(self.running) < self.most:
            options = {**OPTIONS[kind], "ignore_eos": True}
            stream = self.engine.stream(prompt(count, seed), options=options)
            self.running.append((stream, (count, seed, kind)))

    @rule(place=st.integers(0, 15))
    def cancel(self, place: int) -> None:
        if place < len(self.running):
            stream, what = self.running.pop(place)
            stream.cancel()
            self.cancelled.append((stream, what))

    @rule(place=st.integers(0, 15))
    def listen(self, place: int) -> None:
        if place < len(self.running):
            with contextlib.suppress(StopIteration):
                next(self.running[place][0])

    @rule(place=st.integers(0, 15))
    def wait(self, place: int) -> None:
        if place < len(self.running):
            stream, what = self.running.pop(place)
            self.check(stream.result(), what)

    @rule()
    def forget(self) -> None:
        self.engine.cache.clear()

    @invariant()
    def within_its_memory(self) -> None:
        assert self.engine.memory_used <= self.engine.memory_limit

    def check(self, reply: phyla.Reply, what: tuple[int, int, int]) -> None:
        alone = self.solo(what)
        assert (reply.tokens, reply.text) == (alone.tokens, alone.text)
        assert reply.finish_reason == alone.finish_reason

    def solo(self, what: tuple[int, int, int]) -> phyla.Reply:
        if what not in self.alone:
            count, seed, kind = what
            options = {**OPTIONS[kind], "ignore_eos": True}
            self.alone[what] = self.engine.generate(
                prompt(count, seed), options=options, prompt_cache=False
            )
        return self.alone[what]

    def teardown(self) -> None:
        for stream, what in self.running:
            self.check(stream.result(), what)
        for stream, what in self.cancelled:
            reply, alone = stream.result(), self.solo(what)
            assert reply.tokens == alone.tokens[: len(reply.tokens)]
        self.engine.cache.clear()
        assert self.engine.memory_used == 0
        self.engine.close()


def test_a_crowd_of_requests_is_answered_one_by_one(folder: Path) -> None:
    Crowd.folder = folder
    case = Crowd.TestCase
    case.settings = settings(
        max_examples=settings().max_examples // 6,  # each takes long
        stateful_step_count=30,
        deadline=None,
        suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large),
    )
    case("runTest").runTest()
