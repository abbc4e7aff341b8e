"""What every family must hold to, whatever it computes: two roads that lead to one place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from phyla.engine.engine import Engine, load
from phyla.events import Finished, TextDelta
from phyla.testing.agreement import (
    assert_agree,
    assert_chunks_agree,
    assert_differ,
    assert_same_tokens,
    described,
)
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
        assert_chunks_agree(subject.forward, prompt_ids(_SHORT), chunk=chunk)

    def test_a_long_prompt_in_chunks_equals_one_pass(self, subject: Subject) -> None:
        assert_chunks_agree(subject.forward, prompt_ids(_LONG), chunk=32)

    def test_decoding_step_by_step_equals_one_pass(self, subject: Subject) -> None:
        forward, ids = subject.forward, prompt_ids(_SHORT)
        cursor, whole = forward.cursor(len(ids)), forward.run(ids)
        what = f"{subject.name}: 17 tokens in chunks of 5, then one by one"
        cursor.prefill(ids[:17], chunk=5)
        stepwise = forward.run(ids[17:], chunk=1, cursor=cursor)
        assert_agree(stepwise, whole, forward.kinds, what=what)
        # And as generation does it, which looks at no layer.
        decoded = forward.decoded(ids, prompt=17, chunk=5)
        assert_close(decoded, whole.logits[16:], what=what)

    def test_a_later_token_does_not_change_earlier_logits(self, subject: Subject) -> None:
        forward, ids = subject.forward, prompt_ids(_SHORT)
        last = len(ids) - 1
        here, there = forward.run(ids), forward.run([*ids[:-1], (ids[-1] + 1) % 256])
        what = f"{subject.name}: another token {last}"
        assert_agree(
            there.part(0, last), here, forward.kinds, what=f"{what} changes what is before it"
        )
        assert_differ(there.logits[-1], here.logits[-1], what=what)

    def test_the_order_of_earlier_tokens_counts(self, subject: Subject) -> None:
        ids = prompt_ids(_SHORT)
        swapped = [*ids[:-3], ids[-2], ids[-3], ids[-1]]
        found, other = subject.forward.logits(swapped)[-1], subject.forward.logits(ids)[-1]
        what = f"{subject.name}: swapping the two tokens before the last"
        assert_differ(found, other, what=what)

    def test_a_trace_shows_every_layer_in_one_type(self, subject: Subject) -> None:
        ids = prompt_ids(_SHORT)
        trace, kinds = subject.engine.trace(ids), subject.forward.kinds
        assert len(trace.layers) == len(kinds), (
            f"{subject.name}: step.tap was called for {len(trace.layers)} layers, and "
            f"cache_kinds() has {len(kinds)}"
        )
        for index, layer in enumerate(trace.layers):
            where = f"{subject.name}: {described(kinds, index)}"
            assert layer.dtype == "float32", f"{where} makes {layer.dtype} of float32"
            assert layer.hidden.shape[0] == len(ids), f"{where} gives {layer.hidden.shape}"
            assert layer.statistics.finite, f"{where} gives values that are not finite"
        what = f"{subject.name}: the engine's logits and the bare model's"
        assert_close(trace.logits, subject.forward.logits(ids), what=what)

    def test_activations_stay_in_their_type_in_16_bits(self, subject: Subject) -> None:
        with load(subject.folder, dtype="bfloat16", registry=subject.registry) as engine:
            trace = engine.trace(prompt_ids(9))
        for index, layer in enumerate(trace.layers):
            where = f"{subject.name}: {described(subject.forward.kinds, index)}"
            assert layer.dtype == "bfloat16", f"{where} makes {layer.dtype} of bfloat16"
            assert layer.statistics.finite, f"{where} gives values that are not finite"
        assert np.isfinite(trace.logits).all(), f"{subject.name}: logits that are not finite"

    def test_generation_takes_the_likeliest_token_of_a_whole_pass(self, subject: Subject) -> None:
        ids = prompt_ids(_SHORT)
        reply = subject.engine.generate(ids, options=GREEDY)
        logits = subject.engine.trace([*ids, *reply.tokens]).logits[len(ids) - 1 : -1]
        # Rows of the head that the tokenizer has no token for are never chosen.
        known = logits[:, : subject.engine.tokenizer.vocab_size]
        what = f"{subject.name}: a greedy reply, and the likeliest tokens of a whole pass"
        assert_same_tokens(reply.tokens, known.argmax(axis=-1).tolist(), what=what)

    def test_generating_twice_gives_the_same(self, subject: Subject) -> None:
        ids = prompt_ids(_SHORT)
        first = subject.engine.generate(ids, options=GREEDY)
        subject.engine.generate(prompt_ids(9, seed=1), options=GREEDY)
        again = subject.engine.generate(ids, options=GREEDY)
        assert_same_tokens(again.tokens, first.tokens, what=f"{subject.name}: asked again")

    def test_the_seed_that_is_reported_repeats_an_unseeded_reply(self, subject: Subject) -> None:
        unseeded = {**SEEDED, "seed": None}
        first = subject.engine.chat("Hello", options=unseeded)
        again = subject.engine.chat("Hello", options={**SEEDED, "seed": first.seed})
        what = f"{subject.name}: with the seed {first.seed} that was reported"
        assert_same_tokens(again.tokens, first.tokens, what=what)

    def test_streamed_text_is_the_text_of_the_reply_and_of_its_tokens(
        self, subject: Subject
    ) -> None:
        events = list(subject.engine.stream("Hello", options=SEEDED))
        text = "".join(event.text for event in events if isinstance(event, TextDelta))
        last = events[-1]
        assert isinstance(last, Finished)
        assert text == last.reply.text, subject.name
        assert text == subject.engine.tokenizer.decode(last.reply.tokens), subject.name

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
        after = engine.chat("Hello", options=GREEDY)
        what = f"{subject.name}: after a reply that was cancelled"
        assert_same_tokens(after.tokens, before.tokens, what=what)
