"""The lazy penalties say what a plain count over the window says."""

from __future__ import annotations

from collections import Counter

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from phyla.engine.penalties import Penalties, has_penalties
from phyla.engine.resolve import ResolvedOptions

VOCABULARY = 8
IDS = st.lists(st.integers(0, VOCABULARY - 1), max_size=12)


def penalized(
    logits: np.ndarray, prompt: list[int], generated: list[int], options: ResolvedOptions
) -> np.ndarray:
    """The definition in `phyla.Options`, one token at a time."""
    window = options.penalty_window
    everything = prompt + generated
    repeated = everything[-window:] if window else everything
    used = everything[-window:] if window else generated
    expected = logits.astype(np.float64)
    for token in set(repeated):
        value = expected[token]
        repetition = options.repetition_penalty
        expected[token] = value / repetition if value > 0 else value * repetition
    for token, count in Counter(used).items():
        expected[token] -= options.presence_penalty + options.frequency_penalty * count
    return expected


@given(
    values=st.lists(st.floats(-20, 20, width=32), min_size=VOCABULARY, max_size=VOCABULARY),
    prompt=IDS,
    earlier=IDS,
    observed=IDS,
    repetition=st.sampled_from([1.0, 1.3, 0.8]),
    presence=st.sampled_from([0.0, 0.5, -0.5]),
    frequency=st.sampled_from([0.0, 0.25, -0.25]),
    window=st.none() | st.integers(1, 20),
)
@example([1.0] * 8, [1, 2, 3], [], [], 2.0, 0.0, 0.5, 2)
@example([1.0] * 8, [1, 2, 3], [], [3, 3, 3, 4], 1.0, 0.0, 0.5, 3)
@settings(max_examples=100, deadline=None)
def test_penalties_equal_a_plain_count(
    values: list[float],
    prompt: list[int],
    earlier: list[int],
    observed: list[int],
    repetition: float,
    presence: float,
    frequency: float,
    window: int | None,
) -> None:
    options = ResolvedOptions(
        seed=0,
        repetition_penalty=repetition,
        presence_penalty=presence,
        frequency_penalty=frequency,
        penalty_window=window,
    )
    logits = np.array(values, dtype=np.float32)
    penalties = Penalties(options, vocab_size=VOCABULARY, prompt=prompt, generated=earlier)
    for token in observed:
        penalties.observe(mx.array(token, dtype=mx.uint32))
    found = np.array(penalties.apply(mx.array(logits)))
    expected = penalized(logits, prompt, earlier + observed, options)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_the_logits_given_are_left_as_they_were() -> None:
    options = ResolvedOptions(seed=0, presence_penalty=1.0)
    logits = mx.zeros((4,))
    penalties = Penalties(options, vocab_size=4, generated=[2])
    assert penalties.apply(logits).tolist() == [0, 0, -1, 0]
    assert logits.tolist() == [0, 0, 0, 0]


def test_a_suppressed_token_stays_suppressed() -> None:
    options = ResolvedOptions(
        seed=0, repetition_penalty=1.5, presence_penalty=-1.0, frequency_penalty=-1.0
    )
    penalties = Penalties(options, vocab_size=2, generated=[0, 0])
    assert penalties.apply(mx.array([-mx.inf, 0.0]))[0].item() == -mx.inf


def test_placeholders_outside_the_vocabulary_take_no_place_in_the_window() -> None:
    options = ResolvedOptions(seed=0, presence_penalty=1.0, frequency_penalty=1.0, penalty_window=2)
    penalties = Penalties(options, vocab_size=4, prompt=[1, 2, 900, -1])
    assert penalties.apply(mx.zeros((4,))).tolist() == [0, -2, -2, 0]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (ResolvedOptions(seed=0, penalty_window=5), False),
        (ResolvedOptions(seed=0, repetition_penalty=1.1), True),
        (ResolvedOptions(seed=0, presence_penalty=-0.1), True),
        (ResolvedOptions(seed=0, frequency_penalty=0.1), True),
    ],
)
def test_a_window_alone_is_no_penalty(options: ResolvedOptions, expected: bool) -> None:
    assert has_penalties(options) is expected
