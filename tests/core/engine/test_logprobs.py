"""Log probabilities are the model's own: before every filter, exact in number, best first."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phyla.engine.resolve import ResolvedOptions
from phyla.engine.sampling import Sampled, Sampler

LOGITS = st.lists(
    st.floats(-30, 30, width=32) | st.sampled_from([0.0, -0.0, 1.0]), min_size=5, max_size=40
).map(lambda values: np.array(values, dtype=np.float32))


def log_softmax(logits: np.ndarray) -> np.ndarray:
    wide = logits.astype(np.float64)
    shifted = wide - wide.max()
    return shifted - np.log(np.exp(shifted).sum())


def sampled(logits: np.ndarray, **options: Any) -> Sampled:
    resolved = ResolvedOptions(seed=1, **options)
    return Sampler(resolved, len(logits)).sample(mx.array(logits))


@given(logits=LOGITS, count=st.integers(1, 5), temperature=st.sampled_from([0.0, 0.4, 1.5]))
@settings(max_examples=100, deadline=None)
def test_alternatives_are_exact_in_number_and_order(
    logits: np.ndarray, count: int, temperature: float
) -> None:
    step = sampled(logits, temperature=temperature, logprobs=True, top_logprobs=count)
    logprob, top = step.read_logprobs()
    expected = log_softmax(logits)
    order = sorted(range(len(logits)), key=lambda i: (-logits[i], i))[:count]
    assert [token for token, _ in top] == order
    np.testing.assert_allclose([v for _, v in top], expected[order], atol=1e-5)
    np.testing.assert_allclose(logprob, expected[step.token_id()], atol=1e-5)
    assert sum(np.exp([v for _, v in top])) <= 1 + 1e-5


def test_filters_bias_and_penalties_leave_log_probabilities_alone() -> None:
    logits = np.array([3.0, 2.0, 1.0, 0.0], dtype=np.float32)
    step = sampled(
        logits,
        temperature=0.3,
        top_k=2,
        top_p=0.5,
        min_p=0.5,
        logit_bias=((3, 50.0),),
        suppress_tokens=(0,),
        logprobs=True,
        top_logprobs=4,
    )
    logprob, top = step.read_logprobs()
    assert step.token_id() == 3
    assert logprob == pytest.approx(log_softmax(logits)[3], abs=1e-6)
    assert [token for token, _ in top] == [0, 1, 2, 3]


def test_the_chosen_token_has_a_log_probability_without_alternatives() -> None:
    logprob, top = sampled(np.zeros(4, dtype=np.float32), logprobs=True).read_logprobs()
    assert logprob == pytest.approx(np.log(0.25), abs=1e-6)
    assert top == ()


def test_nothing_is_computed_that_was_not_asked_for() -> None:
    step = sampled(np.zeros(4, dtype=np.float32))
    assert step.logprob is None
    assert step.top is None
    assert len(step.arrays) == 1


def test_padding_has_no_share_in_log_probabilities() -> None:
    options = ResolvedOptions(seed=0, temperature=0.0, logprobs=True, top_logprobs=2)
    step = Sampler(options, 4, limit=2).sample(mx.array([0.0, 0.0, 9.0, 9.0]))
    logprob, top = step.read_logprobs()
    assert logprob == pytest.approx(np.log(0.5), abs=1e-6)
    assert [token for token, _ in top] == [0, 1]


def test_half_precision_logits_are_widened_first() -> None:
    logits = mx.array(np.linspace(-4, 4, 1000)).astype(mx.bfloat16)
    options = ResolvedOptions(seed=0, temperature=0.0, logprobs=True, top_logprobs=100)
    logprob, top = Sampler(options, 1000).sample(logits).read_logprobs()
    expected = log_softmax(np.array(logits.astype(mx.float32)))
    assert logprob == pytest.approx(expected.max(), abs=1e-5)
    np.testing.assert_allclose([v for _, v in top], np.sort(expected)[::-1][:100], atol=1e-5)


def test_every_generated_token_has_one_entry_that_belongs_to_it() -> None:
    options = ResolvedOptions(seed=4, temperature=1.0, logprobs=True, top_logprobs=3)
    sampler = Sampler(options, 50)
    rows = np.random.default_rng(0).normal(size=(20, 50)).astype(np.float32)
    steps = [sampler.sample(mx.array(row)) for row in rows]  # read only after all were built
    for row, step in zip(rows, steps, strict=True):
        logprob, top = step.read_logprobs()
        assert len(top) == 3
        assert logprob == pytest.approx(log_softmax(row)[step.token_id()], abs=1e-5)
