"""What every family must hold to, whatever it computes: two roads that lead to one place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from phyla.engine.engine import Engine, load
from phyla.events import Finished, TextDelta
from phyla.testing.forward import Forward, assert_close
from phyla.testing.memory import Memory
from phyla.testing.thorough import some
from phyla.testing.tiny import prompt_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from phyla.registry import Registry
    from phyla.testing.tiny import Tiny

# Longer than a block of queries on a CPU, and enough tokens for a mixture of experts to sort them.
_LONG = 150
_SHORT = 40
# More than a tiny model generates before somebody can cancel it.
_ENDLESS = 100_000

GREEDY: Mapping[str, Any] = {"temperature": 0, "max_tokens": 10, "ignore_eos": True}
SEEDED: Mapping[str, Any] = {"temperature": 1.5, "max_tokens": 10, "ignore_eos": True, "seed": 7}


# How many configs of a family an ordinary run takes.
_MOST_SUBJECTS = 2
# And of how many a thorough run asks the slower tests of what engines remember.
_MOST_REMEMBERING = 5


@dataclass(frozen=True)
class Subject:
    """A tiny checkpoint, loaded twice: as an engine, and as its bare model in float32.

    `remembers` says whether the slower tests of what engines remember are run on it.
    """

    name: str
    folder: Path
    engine: Engine
    forward: Forward
    registry: Registry | None = None
    remembers: bool = True


def subjects(
    table: Mapping[str, Tiny], *, registry: Registry | None = None
) -> Callable[..., Iterator[Subject]]:
    """A module-scoped fixture that runs through a table of tiny configs; call it `subject`.

    Of a long table an ordinary run takes an even choice, see `phyla.testing.thorough`.
    """
    names = list(some(table, count=len(table), most=_MOST_SUBJECTS))
    # What engines remember depends on the kinds of layers and hardly on the rest of a config.
    most = 1 if len(names) <= _MOST_SUBJECTS else _MOST_REMEMBERING
    remembering = set(names[:: max(1, -(-len(names) // most))])

    @pytest.fixture(scope="module", params=names)
    def subject(
        request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
    ) -> Iterator[Subject]:
        tiny = table[request.param]
        folder = tiny.write(tmp_path_factory.mktemp("tiny") / tiny.name, registry=registry)
        with load(folder, dtype="float32", max_context=_ENDLESS, registry=registry) as engine:
            yield Subject(
                tiny.name,
                folder,
                engine,
                Forward(folder, registry=registry),
                registry,
                remembers=tiny.name in remembering,
            )

    return subject


class Conformance(Memory):
    """The suite; subclass it as `class TestConformance(Conformance)` next to a `subject` fixture.

    The tests need no reference implementation, so they cannot tell a right model from a wrong one
    that is consistent; parity with a reference is a test of its own.
    """

    @pytest.mark.parametrize("chunk", [1, 7, 13])
    def test_prefill_in_chunks_equals_one_pass(self, subject: Subject, chunk: int) -> None:
        ids = prompt_ids(_SHORT)
        assert_close(subject.forward.logits(ids, chunk=chunk), subject.forward.logits(ids))

    def test_a_long_prompt_in_chunks_equals_one_pass(self, subject: Subject) -> None:
        ids = prompt_ids(_LONG)
        assert_close(subject.forward.logits(ids, chunk=32), subject.forward.logits(ids))

    def test_decoding_step_by_step_equals_one_pass(self, subject: Subject) -> None:
        ids = prompt_ids(_SHORT)
        stepwise = subject.forward.decoded(ids, prompt=17, chunk=5)
        assert_close(stepwise, subject.forward.logits(ids)[16:])

    def test_a_later_token_does_not_change_earlier_logits(self, subject: Subject) -> None:
        ids = prompt_ids(_SHORT)
        other = [*ids[:-1], (ids[-1] + 1) % 256]
        here, there = subject.forward.logits(ids), subject.forward.logits(other)
        assert_close(here[:-1], there[:-1])
        with pytest.raises(AssertionError):
            assert_close(here[-1], there[-1])

    def test_the_order_of_earlier_tokens_counts(self, subject: Subject) -> None:
        ids = prompt_ids(_SHORT)
        swapped = [*ids[:-3], ids[-2], ids[-3], ids[-1]]
        with pytest.raises(AssertionError):
            assert_close(subject.forward.logits(swapped)[-1], subject.forward.logits(ids)[-1])

    def test_a_trace_shows_every_layer_in_one_type(self, subject: Subject) -> None:
        ids = prompt_ids(_SHORT)
        trace = subject.engine.trace(ids)
        assert len(trace.layers) == len(subject.forward.model.cache_kinds())
        assert {layer.dtype for layer in trace.layers} == {"float32"}
        assert {layer.hidden.shape[0] for layer in trace.layers} == {len(ids)}
        assert all(layer.statistics.finite for layer in trace.layers)
        assert_close(trace.logits, subject.forward.logits(ids))

    def test_activations_stay_in_their_type_in_16_bits(self, subject: Subject) -> None:
        with load(subject.folder, dtype="bfloat16", registry=subject.registry) as engine:
            trace = engine.trace(prompt_ids(9))
        assert {layer.dtype for layer in trace.layers} == {"bfloat16"}
        assert np.isfinite(trace.logits).all()

    def test_generation_takes_the_likeliest_token_of_a_whole_pass(self, subject: Subject) -> None:
        ids = prompt_ids(_SHORT)
        reply = subject.engine.generate(ids, options=GREEDY)
        logits = subject.engine.trace([*ids, *reply.tokens]).logits[len(ids) - 1 : -1]
        # Rows of the head that the tokenizer has no token for are never chosen.
        known = logits[:, : subject.engine.tokenizer.vocab_size]
        assert list(reply.tokens) == known.argmax(axis=-1).tolist()

    def test_generating_twice_gives_the_same(self, subject: Subject) -> None:
        ids = prompt_ids(_SHORT)
        first = subject.engine.generate(ids, options=GREEDY)
        subject.engine.generate(prompt_ids(9, seed=1), options=GREEDY)
        assert subject.engine.generate(ids, options=GREEDY).tokens == first.tokens

    def test_the_seed_that_is_reported_repeats_an_unseeded_reply(self, subject: Subject) -> None:
        unseeded = {**SEEDED, "seed": None}
        first = subject.engine.chat("Hello", options=unseeded)
        again = subject.engine.chat("Hello", options={**SEEDED, "seed": first.seed})
        assert again.tokens == first.tokens

    def test_streamed_text_is_the_text_of_the_reply_and_of_its_tokens(
        self, subject: Subject
    ) -> None:
        events = list(subject.engine.stream("Hello", options=SEEDED))
        text = "".join(event.text for event in events if isinstance(event, TextDelta))
        last = events[-1]
        assert isinstance(last, Finished)
        assert text == last.reply.text
        assert text == subject.engine.tokenizer.decode(last.reply.tokens)

    def test_a_cancelled_reply_leaves_the_engine_as_it_was(self, subject: Subject) -> None:
        engine = subject.engine
        before = engine.chat("Hello", options=GREEDY)
        # Blanks at a reply's start are withheld, and a tiny model may say nothing else.
        blanks = engine.tokenizer.encode("\n\r\t ", add_special_tokens=False)
        endless = {**SEEDED, "max_tokens": None, "suppress_tokens": tuple(blanks)}
        with engine.stream("Hello", options=endless) as stream:
            next(stream)
            stream.cancel()
            assert stream.result().finish_reason == "cancelled"
        assert engine.chat("Hello", options=GREEDY).tokens == before.tokens
