"""What the conformance kit says of a wrong model: which layer it is, and how it was asked."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
import pytest

from phyla.engine.engine import load
from phyla.family import Full, NoCache, Recurrent, SharedWith, Sliding
from phyla.testing import (
    Conformance,
    Forward,
    Subject,
    Tiny,
    assert_chunks_agree,
    assert_close,
    prompt_ids,
    registry_of,
)
from phyla.testing.agreement import assert_agree, assert_differ, assert_same_tokens, described
from phyla.testing.forward import Run
from phyla.testing.mixed import MIXED, MixedModel, mixed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from phyla.family import Step

# Layer 1 is a recurrence, layer 2 attends to a window.
TINY = Tiny("wrong on purpose", mixed("frwm"))


class _Amnesia:
    """The store of a recurrent layer, whose states are read as zeros."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    @property
    def states(self) -> tuple[mx.array, ...]:
        return tuple(mx.zeros_like(state) for state in self.inner.states)

    def advance(self, *states: mx.array, tokens: int) -> None:
        self.inner.advance(*states, tokens=tokens)


class Forgetful(MixedModel):
    """Layer 1 forgets its states between chunks."""

    def __call__(self, hidden: mx.array, step: Step, caches: Sequence[Any]) -> mx.array:
        return super().__call__(hidden, step, [caches[0], _Amnesia(caches[1]), *caches[2:]])


class Clairvoyant(MixedModel):
    """Layer 2 adds what stands at the end of the chunk."""

    def __call__(self, hidden: mx.array, step: Step, caches: Sequence[Any]) -> mx.array:
        for index, (layer, cache) in enumerate(zip(self.layers, caches, strict=True)):
            hidden = layer(hidden, cache)
            if index == 2:
                hidden = hidden + hidden[:, -1:]
            step.tap(index, hidden)
        return self.norm(hidden)


class Widening(MixedModel):
    """Layer 3 gives float32, whatever comes in."""

    def __call__(self, hidden: mx.array, step: Step, caches: Sequence[Any]) -> mx.array:
        for index, (layer, cache) in enumerate(zip(self.layers, caches, strict=True)):
            hidden = layer(hidden, cache)
            step.tap(index, hidden.astype(mx.float32) if index == 3 else hidden)
        return self.norm(hidden)


class Silent(Forgetful):
    """Taps nothing."""

    def __call__(self, hidden: mx.array, step: Step, caches: Sequence[Any]) -> mx.array:
        return super().__call__(hidden, replace(step, tap=lambda layer, states: None), caches)


@pytest.fixture
def subject_of(tmp_path: Path) -> Iterator[Callable[[type[MixedModel]], Subject]]:
    """A subject as the suite has it, with a model of our own."""
    engines = []

    def make(model: type[MixedModel]) -> Subject:
        registry = registry_of(replace(MIXED, model=model))
        folder = TINY.write(tmp_path / TINY.name, registry=registry)
        engine = load(folder, dtype="float32", registry=registry)
        engines.append(engine)
        return Subject(TINY.name, folder, engine, Forward(folder, registry=registry), registry)

    yield make
    for engine in engines:
        engine.close()


def failure(check: Callable[[], None]) -> str:
    with pytest.raises(AssertionError) as caught:
        check()
    return str(caught.value)


SUITE = Conformance()
FIRST = "The first layer to differ is"
RECURRENCE = f"{FIRST} layer 1 (Recurrent, states (32,) and (1, 32)), from token"


def test_a_layer_that_forgets_is_named_with_the_model_and_the_chunk(subject_of):
    subject = subject_of(Forgetful)
    said = failure(lambda: SUITE.test_prefill_in_chunks_equals_one_pass(subject, 7))
    assert said.startswith("wrong on purpose: 40 tokens in chunks of 7: differs by ")
    assert said.endswith(f"{RECURRENCE} 7 on.")


def test_every_check_of_a_bare_model_names_the_layer(subject_of):
    subject = subject_of(Forgetful)
    checks = {
        "150 tokens in chunks of 32": SUITE.test_a_long_prompt_in_chunks_equals_one_pass,
        "in chunks of 5, then one by one": SUITE.test_decoding_step_by_step_equals_one_pass,
        "in chunks of 1": SUITE.test_a_window_equals_a_mask_for_every_size_of_chunk,
        "a fork at a snapshot": SUITE.test_a_snapshot_brings_the_moment_back,
        "forked after 25 tokens": SUITE.test_forks_go_their_own_ways,
        "cut from 90": SUITE.test_what_can_be_cut_is_as_if_the_rest_had_never_been,
    }
    for asked, check in checks.items():
        said = failure(lambda check=check: check(subject))
        assert "wrong on purpose: " in said, asked
        assert asked in said
        assert RECURRENCE in said, asked


def test_a_layer_that_sees_what_comes_later_is_named(subject_of):
    subject = subject_of(Clairvoyant)
    said = failure(lambda: SUITE.test_a_later_token_does_not_change_earlier_logits(subject))
    assert "another token 39 changes what is before it" in said
    assert said.endswith(f"{FIRST} layer 2 (Sliding, window 8), from token 0 on.")


def test_a_layer_that_widens_is_named(subject_of):
    subject = subject_of(Widening)
    said = failure(lambda: SUITE.test_activations_stay_in_their_type_in_16_bits(subject))
    assert "wrong on purpose: layer 3 (NoCache) makes float32 of bfloat16" in said


def test_without_a_tap_the_message_says_so(subject_of):
    forward = subject_of(Silent).forward
    said = failure(lambda: assert_chunks_agree(forward, prompt_ids(20), chunk=7))
    assert "the model never calls `step.tap(index, hidden)`" in said


def run(start: int, logits: Sequence[float], *layers: Sequence[float]) -> Run:
    rows = [np.array(values, np.float32)[:, None] * [[1.0, 2.0]] for values in (logits, *layers)]
    return Run(start, rows[0], dict(enumerate(rows[1:])))


def test_a_wrong_head_is_no_layers_fault():
    kinds = [NoCache()]
    found, expected = run(1, [2, 4], [1, 1]), run(0, [1, 2, 3], [1, 1, 1])
    said = failure(lambda: assert_agree(found, expected, kinds, what="tiny"))
    assert said.endswith("No layer's hidden states differ: look at the final norm and at `logits`.")
    assert_agree(expected.part(1, 2), expected, kinds, what="tiny")


def test_a_value_that_is_no_number_is_found_in_its_layer():
    kinds = [NoCache(), SharedWith(0)]
    found, expected = run(3, [1, np.nan], [1, 2], [1, np.nan]), run(3, [1, 2], [1, 2], [1, 2])
    said = failure(lambda: assert_agree(found, expected, kinds, what="tiny"))
    assert said.endswith("layer 1 (SharedWith layer 0), from token 4 on.")


def test_a_layer_without_a_tap_shifts_no_index():
    kinds = [NoCache(), NoCache(), SharedWith(0)]
    found, expected = run(0, [1, 5]), run(0, [1, 2])
    states = run(0, [1, 5]).logits
    found = replace(found, layers={2: states})
    expected = replace(expected, layers={0: states, 2: expected.logits})
    said = failure(lambda: assert_agree(found, expected, kinds, what="tiny"))
    assert said.endswith("layer 2 (SharedWith layer 0), from token 1 on.")


def test_replies_that_differ_are_told_from_the_first_token_on():
    said = failure(lambda: assert_same_tokens((1, 2, 3), [1, 5, 3], what="tiny: again"))
    assert said == "tiny: again: from token 1 on the reply is [1, 2, 3] instead of [1, 5, 3]"
    said = failure(lambda: assert_same_tokens((1, 2), (1, 2, 3), what="tiny: again"))
    assert said == "tiny: again: from token 2 on the reply is [1, 2] instead of [1, 2, 3]"
    assert_same_tokens((1, 2), [1, 2], what="tiny: again")


def test_what_changes_nothing_is_told():
    said = failure(lambda: assert_differ([1.0, 2.0], [1.0, 2.0], what="tiny: another token"))
    assert said == "tiny: another token does not change the logits"
    assert_differ([1.0, 2.0], [1.0, 3.0], what="tiny: another token")


def test_what_is_compared_stands_before_the_difference():
    said = failure(lambda: assert_close([1.0], [1.0, 2.0], what="tiny"))
    assert said == "tiny: shape (1,) instead of (2,)"
    assert failure(lambda: assert_close([1.0, 3.0], [1.0, 2.0])).startswith("differs by 1 at (1,)")


def test_layers_are_described_by_what_they_remember():
    kinds = [
        Full(heads=1, key_dim=2, value_dim=2),
        Sliding(window=5, heads=1, key_dim=2, value_dim=2),
        Recurrent(shapes=((3, 4),), dtypes=(None,)),
        SharedWith(1),
        NoCache(),
    ]
    assert [described(kinds, layer) for layer in range(6)] == [
        "layer 0 (Full)",
        "layer 1 (Sliding, window 5)",
        "layer 2 (Recurrent, states (3, 4))",
        "layer 3 (SharedWith layer 1)",
        "layer 4 (NoCache)",
        "layer 5 (for which cache_kinds() has none)",
    ]
