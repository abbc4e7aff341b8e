"""What is remembered changes no reply: the pool, sessions and batches, for every family.

Every reply is compared with the same request run cold and alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
import pytest

from phyla.caching import CacheLimits
from phyla.engine.caches import FullCache
from phyla.engine.engine import load
from phyla.engine.layers import Allocation
from phyla.engine.radix import common_length
from phyla.family import Full, Sliding
from phyla.prompt import Prompt
from phyla.testing.agreement import assert_agree, assert_same_tokens, described
from phyla.testing.forward import assert_close
from phyla.testing.tiny import prompt_ids

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from phyla.engine.engine import Engine
    from phyla.events import Reply
    from phyla.testing.invariants import Subject

GREEDY: Mapping[str, Any] = {"temperature": 0, "max_tokens": 8, "ignore_eos": True}

# What may be said in many ways: every path through the sampler, of different lengths.
VARIED: Sequence[Mapping[str, Any]] = (
    {"temperature": 0, "max_tokens": 9},
    {"temperature": 1.5, "seed": 1, "max_tokens": 5},
    {"temperature": 1.2, "seed": 2, "max_tokens": 12, "top_p": 0.9},
    {"temperature": 1.0, "seed": 3, "max_tokens": 7, "top_k": 9, "repetition_penalty": 1.3},
    {"temperature": 0.8, "seed": 4, "max_tokens": 3, "logprobs": True, "min_p": 0.01},
)


def cold(engine: Engine, ids: Sequence[int], options: Mapping[str, Any]) -> Reply:
    """The reply of a request that uses nothing and leaves nothing."""
    return engine.generate(ids, options={**options, "ignore_eos": True}, prompt_cache=False)


class Memory:
    """The part of the conformance suite that is about what is remembered."""

    @pytest.fixture
    def engine(self, subject: Subject) -> Iterator[Engine]:
        """The subject's engine with an empty pool."""
        _skip_most(subject)
        subject.engine.cache.clear()
        yield subject.engine
        subject.engine.cache.clear()

    @pytest.fixture(params=[False, True], ids=["step by step", "running ahead"])
    def any_engine(
        self, request: pytest.FixtureRequest, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> Engine:
        """The same as on a CPU, and as on a GPU, where one reply's next step starts earlier."""
        scheduler = engine.machine.loaded.scheduler
        monkeypatch.setattr(scheduler, "run_ahead", request.param)
        return engine

    # Layers.

    def test_a_window_equals_a_mask_for_every_size_of_chunk(self, subject: Subject) -> None:
        forward = subject.forward
        windows = [kind.window for kind in forward.kinds if isinstance(kind, Sliding)]
        if not windows:
            pytest.skip("no layer slides")
        window = min(windows)
        ids = prompt_ids(3 * window + 5)
        whole = forward.run(ids)
        for chunk in range(1, window + 4):
            what = f"{subject.name}: {len(ids)} tokens in chunks of {chunk}, windows of {windows}"
            assert_agree(forward.run(ids, chunk=chunk), whole, forward.kinds, what=what)

    def test_a_snapshot_brings_the_moment_back(self, subject: Subject) -> None:
        ids, other = prompt_ids(60), prompt_ids(20, seed=5)
        cursor = subject.forward.cursor(200)
        cursor.prefill(ids[:23], chunk=9)
        snapshot = cursor.layers.snapshot()
        cursor.prefill([*ids[23:], *other], chunk=16)
        expected = subject.forward.run(ids[:40])
        for how in ("a fork at a snapshot", "a snapshot that is restored"):
            layers = cursor.layers
            if how == "a fork at a snapshot":
                layers = layers.fork_at(snapshot)
            else:
                layers.restore(snapshot)
            again = subject.forward.cursor(200, layers)
            assert again.length == 23
            found = subject.forward.run(ids[23:40], chunk=6, cursor=again)
            what = f"{subject.name}: {how} after 23 tokens, then chunks of 6"
            assert_agree(found, expected, subject.forward.kinds, what=what)

    def test_forks_go_their_own_ways(self, subject: Subject) -> None:
        ids, other = prompt_ids(40), prompt_ids(12, seed=5)
        cursor = subject.forward.cursor(200)
        cursor.prefill(ids[:25], chunk=9)
        fork = subject.forward.cursor(200, cursor.layers.fork(25))
        forward = subject.forward
        one = forward.run(ids[25:], chunk=4, cursor=cursor)
        two = forward.run(other, chunk=5, cursor=fork)
        for found, whole, what in (
            (one, ids, "what was forked after 25 tokens, then chunks of 4"),
            (two, [*ids[:25], *other], "a fork after 25 tokens, then chunks of 5"),
        ):
            expected = forward.run(whole)
            assert_agree(found, expected, forward.kinds, what=f"{subject.name}: {what}")

    def test_what_can_be_cut_is_as_if_the_rest_had_never_been(self, subject: Subject) -> None:
        ids = prompt_ids(90)
        cursor = subject.forward.cursor(200)
        cursor.prefill(ids, chunk=40)
        length = max(cursor.layers.floor, 70)
        cursor.layers.cut(length)
        other = prompt_ids(10, seed=3)
        expected = subject.forward.run([*ids[:length], *other])
        found = subject.forward.run(other, chunk=3, cursor=cursor)
        what = f"{subject.name}: cut from {len(ids)} to {length} tokens, then chunks of 3"
        assert_agree(found, expected, subject.forward.kinds, what=what)

    def test_keys_can_be_moved_to_other_positions(self, subject: Subject) -> None:
        model, kinds = subject.forward.model, subject.forward.kinds
        if not model.rotates_keys or not isinstance(kinds[0], Full | Sliding):
            pytest.skip("this model's keys stay where they are")
        ids = prompt_ids(6)
        here, there = subject.forward.cursor(200), subject.forward.cursor(200)
        here.feed(ids, last=False)
        there.feed([*prompt_ids(5, seed=1), *ids], last=False)
        # The first layer's keys depend on nothing but the token and its place.
        kept, moved = here.layers.stores[0], there.layers.stores[0]
        assert isinstance(kept, FullCache)
        assert isinstance(moved, FullCache)
        count = min(6, kept.length - kept.start)
        keys = model.rotate_keys(0, kept.seen(count)[0][:, :, -count:], 5)
        what = f"{subject.name}: {described(kinds, 0)}, keys rotated by 5 positions more"
        assert_close(keys, moved.seen(count)[0][:, :, -count:], what=what)

    def test_no_more_memory_is_taken_than_was_reckoned(self, subject: Subject) -> None:
        kinds = subject.forward.kinds
        reckoned = Allocation(kinds, mx.float32).nbytes(400, chunk=50)
        cursor = subject.forward.cursor(400)
        ids = prompt_ids(300)
        for start in range(0, 300, 50):
            cursor.prefill(ids[start : start + 50], chunk=50)
            mx.eval(cursor.layers.arrays)
            assert cursor.layers.nbytes <= reckoned, (
                f"{subject.name}: after {start + 50} tokens in chunks of 50, "
                f"{cursor.layers.nbytes} bytes instead of {reckoned}; by layer: "
                + ", ".join(
                    f"{described(kinds, index)} {store.nbytes}"
                    for index, store in enumerate(cursor.layers.stores)
                )
            )

    # The pool.

    def test_replies_are_the_same_whatever_the_pool_holds(self, any_engine: Engine) -> None:
        engine = any_engine
        first = prompt_ids(80)
        reply = cold(engine, first, GREEDY)
        goes_on = [*first, *reply.tokens, *prompt_ids(7, seed=2)]
        prompts = (
            first,
            first,  # once more
            first[:50],  # a beginning of it
            goes_on,  # the next turn
            [*first[:60], *prompt_ids(30, seed=3)],  # another end
            [*goes_on, *prompt_ids(40, seed=4)],
            prompt_ids(30, seed=6),  # nothing in common
            first,
        )
        for number, ids in enumerate(prompts):
            expected = cold(engine, ids, GREEDY)
            found = engine.generate(ids, options=GREEDY)
            cached = found.usage.cached_tokens
            what = f"{engine.name}: prompt {number}, {cached} of {len(ids)} tokens remembered"
            assert_same_tokens(found.tokens, expected.tokens, what=what)
            assert expected.usage.cached_tokens == 0
            assert found.usage.cached_tokens < len(ids)

    def test_a_prompt_sent_twice_is_read_once(self, engine: Engine) -> None:
        ids = prompt_ids(70)
        engine.generate(ids, options=GREEDY)
        told = engine.cache.explain(_prompt(ids), max_tokens=GREEDY["max_tokens"])
        assert told.cached_tokens == 69, engine.name
        again = engine.generate(ids, options=GREEDY)
        assert again.usage.cached_tokens == 69, engine.name

    def test_a_small_pool_forgets_and_replies_stay_the_same(self, subject: Subject) -> None:
        _skip_most(subject)
        limits = CacheLimits(entries=2)
        with load(
            subject.folder, dtype="float32", cache=limits, registry=subject.registry
        ) as engine:
            for seed in (0, 1, 2, 0, 1, 2):
                ids = prompt_ids(40, seed=seed)
                found = engine.generate(ids, options=GREEDY)
                cached = found.usage.cached_tokens
                what = f"{engine.name}: a full cache, {cached} of {len(ids)} tokens remembered"
                assert_same_tokens(found.tokens, cold(engine, ids, GREEDY).tokens, what=what)
                assert engine.cache.stats().entries <= 2
            assert engine.cache.stats().evictions >= 2

    def test_a_conversation_is_read_from_where_it_went_on(self, engine: Engine) -> None:
        messages: list[Any] = [{"role": "system", "content": "Be brief, and stay calm. " * 20}]
        before: Sequence[int] = ()
        for turn in range(4):
            messages.append({"role": "user", "content": f"Question {turn}: " + "what? " * 5})
            prompt = engine.encode(messages)
            shared = common_length(tuple(before), prompt.ids)
            reply = engine.chat(messages, options=GREEDY)
            alone = engine.chat(messages, options=GREEDY, prompt_cache=False)
            cached = reply.usage.cached_tokens
            what = f"{engine.name}: turn {turn}, {cached} of {len(prompt.ids)} tokens remembered"
            assert_same_tokens(reply.tokens, alone.tokens, what=what)
            if turn:
                assert cached >= 0.95 * shared, f"{what}, and {shared} were said before"
            before = [*prompt.ids, *reply.tokens]
            messages.append(reply.message)

    # Batches.

    def test_a_request_among_others_is_answered_as_if_it_were_alone(
        self, any_engine: Engine
    ) -> None:
        engine = any_engine
        requests = [
            (prompt_ids(20 + 9 * place, seed=place % 3), {**options, "ignore_eos": True})
            for place, options in enumerate(VARIED)
        ]
        alone = [cold(engine, ids, options) for ids, options in requests]
        for pooled in (False, True):
            streams = [
                engine.stream(_prompt(ids), options=options, prompt_cache=pooled)
                for ids, options in requests
            ]
            together = [stream.result() for stream in streams]
            for number, (one, other) in enumerate(zip(alone, together, strict=True)):
                what = f"{engine.name}: request {number} of {len(requests)} at once"
                assert_same_tokens(other.tokens, one.tokens, what=what)
                assert other.text == one.text, what

    def test_memory_returns_to_the_start(self, engine: Engine) -> None:
        before = engine.memory_used
        streams = [
            engine.stream(_prompt(prompt_ids(30, seed=seed)), options=GREEDY) for seed in range(3)
        ]
        streams[1].cancel()
        for stream in streams:
            stream.result()
        assert engine.memory_used > before, engine.name
        engine.cache.clear()
        assert engine.memory_used == before, engine.name

    # Sessions.

    def test_a_session_says_what_the_engine_says(self, engine: Engine) -> None:
        ids, options = prompt_ids(45), {**VARIED[3], "ignore_eos": True, "max_tokens": 12}
        whole = cold(engine, ids, options)
        # As long as the request may become, which some rotations depend on.
        with engine.session(max_seq_len=len(ids) + 12) as session:
            session.append_tokens(ids[:20])
            session.append_tokens(ids[20:])
            first = session.generate({**options, "max_tokens": 5})
            other = session.fork()
            rest = {**options, "max_tokens": 7}
            for who, each in (("a session", session), ("its fork", other)):
                said = (*first.tokens, *each.generate(rest).tokens)
                assert_same_tokens(said, whole.tokens, what=f"{engine.name}: {who}")
            other.close()

    # Keys and values in fewer bits.

    def test_quantized_keys_and_values_are_remembered_and_batched(self, subject: Subject) -> None:
        _skip_most(subject)
        with load(
            subject.folder, dtype="float32", kv_bits=(8, 8), registry=subject.registry
        ) as engine:
            prompts = [prompt_ids(40, seed=seed) for seed in range(3)]
            alone = [cold(engine, ids, GREEDY).tokens for ids in prompts]
            streams = [engine.stream(_prompt(ids), options=GREEDY) for ids in prompts]
            together = [stream.result().tokens for stream in streams]
            again = [engine.generate(ids, options=GREEDY).tokens for ids in prompts]
            for number, expected in enumerate(alone):
                what = f"{engine.name}: keys and values in 8 bits, request {number}"
                assert_same_tokens(together[number], expected, what=f"{what}, in a batch")
                assert_same_tokens(again[number], expected, what=f"{what}, once more")


def _skip_most(subject: Subject) -> None:
    if not subject.remembers:
        pytest.skip("this is asked of some configs of a table")


def _prompt(ids: Sequence[int]) -> Prompt:
    return Prompt(ids=tuple(ids))
