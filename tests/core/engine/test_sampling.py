"""Each filter keeps what a slow reference keeps, and a seed alone decides the draw."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from phyla.engine import sampling
from phyla.engine.resolve import ResolvedOptions
from phyla.engine.sampling import Sampler, draw, ranked, uniform
from phyla.errors import PluginError

if TYPE_CHECKING:
    from collections.abc import Sequence

QUANTILES = (np.arange(80) + 0.5) / 80

# Small steps and few values, so that ties are common.
LOGITS = st.lists(st.integers(-8, 8).map(lambda n: n / 4), min_size=1, max_size=12)


def ranking(logits: np.ndarray) -> list[int]:
    return sorted(range(len(logits)), key=lambda i: (-logits[i], i))


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max())
    return powers / powers.sum()


def kept(
    logits: Sequence[float], *, temperature: float, top_k: int, top_p: float, min_p: float
) -> dict[int, float]:
    """Probabilities of the tokens that the filters leave, in 64 bits and one step at a time."""
    probability = softmax(np.array(logits, dtype=np.float64) / temperature)
    order = ranking(np.array(logits))
    if top_k:
        order = order[:top_k]
    reached, shortest, total = 0.0, [], sum(probability[i] for i in order)
    for i in order:
        if reached >= top_p * total:
            break
        shortest.append(i)
        reached += probability[i]
    best = probability[order[0]]
    left = [i for i in shortest if probability[i] >= min_p * best]
    mass = sum(probability[i] for i in left)
    return {i: float(probability[i] / mass) for i in left}


def histogram(logits: Sequence[float], **filters: Any) -> dict[int, float]:
    """How often each token is drawn over evenly spaced quantiles."""
    array = mx.array(list(logits), dtype=mx.float32)
    tokens = mx.stack([draw(array, float(u), **filters) for u in QUANTILES]).tolist()
    ids, counts = np.unique(np.array(tokens), return_counts=True)
    return dict(zip(ids.tolist(), (counts / len(QUANTILES)).tolist(), strict=True))


def assert_same_distribution(logits: Sequence[float], **filters: Any) -> None:
    expected = kept(logits, **filters)
    found = histogram(logits, **filters)
    assert set(found) <= set(expected)
    # Evenly spaced quantiles count a token to within one of its share.
    for token, share in expected.items():
        assert abs(found.get(token, 0.0) - share) <= 1.01 / len(QUANTILES)


@given(
    logits=LOGITS,
    temperature=st.sampled_from([0.3, 1.0, 2.5]),
    top_k=st.integers(0, 13),
    # No value here is one that a run of equal probabilities reaches exactly: whether 0.3 is reached
    # by three tenths is a matter of rounding.
    top_p=st.sampled_from([0.0137, 0.2123, 0.5171, 0.8019, 0.9501, 1.0]),
    min_p=st.sampled_from([0.0, 0.0517, 0.4013, 0.97]),
)
@example([0.0] * 12, 1.0, 5, 0.9501, 0.0)
@example([0.0] * 12, 1.0, 0, 0.9501, 0.0)
@example([1.0], 1.0, 0, 0.0137, 0.97)
@settings(max_examples=40, deadline=None)
def test_filters_in_any_mix_equal_the_reference(
    logits: list[float], temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    assert_same_distribution(logits, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)


def token_at(u: float, logits: mx.array, **filters: Any) -> int:
    return cast("int", draw(logits, u, temperature=1.0, **filters).item())


@pytest.mark.parametrize("spread", [0.01, 3.0, 6.0])
@pytest.mark.parametrize("top_p", [0.3, 0.9, 0.9999])
def test_top_p_is_exact_on_either_side_of_its_shortcut(spread: float, top_p: float) -> None:
    size = 30 * sampling._NUCLEUS + 1
    logits = np.random.default_rng(3).normal(size=size, scale=spread).astype(np.float32)
    order = ranking(logits)
    last = order.index(token_at(1 - 2**-24, mx.array(logits), top_p=top_p))
    assert order[0] == token_at(2**-24, mx.array(logits), top_p=top_p)
    # Up to the rounding of single precision, the last token that can be drawn is the one that
    # reaches p.
    reached = np.cumsum(softmax(logits.astype(np.float64))[order])
    assert reached[last] >= top_p - 1e-6
    assert last == 0 or reached[last - 1] <= top_p + 1e-6


def test_many_unlikely_tokens_keep_their_share_beside_a_likely_one() -> None:
    # Added one by one to 1 in single precision, weights of 1e-8 would vanish altogether.
    size = 100_000
    logits = np.full(size, math.log(1e-8), dtype=np.float32)
    logits[0] = 0.0
    array = mx.array(logits)
    share = 1e-8 * size / (1 + 1e-8 * size)
    assert token_at(1 - 0.9 * share, array) > 0
    assert token_at(1 - 1.1 * share, array) == 0


@given(logits=LOGITS.map(lambda values: [*values, -0.0, 0.0]), count=st.integers(1, 14))
@settings(max_examples=100, deadline=None)
def test_ranking_puts_equal_logits_in_order_of_their_ids(logits: list[float], count: int) -> None:
    expected = ranking(np.array(logits))[:count]
    assert ranked(mx.array(logits), min(count, len(logits))).tolist() == expected


def test_ranking_orders_every_kind_of_number() -> None:
    logits = [-math.inf, 3.4e38, -1e-30, 0.0, math.inf, -3.4e38, 1e-30]
    assert ranked(mx.array(logits), 7).tolist() == [4, 1, 6, 3, 2, 5, 0]


def test_equal_logits_at_the_edge_of_top_k_keep_the_lower_ids() -> None:
    assert set(histogram([0.0, 1.0, 0.0, 0.0, 0.0], temperature=1.0, top_k=3)) == {0, 1, 2}


def test_a_fixed_seed_draws_with_the_right_frequencies() -> None:
    logits = np.log([0.5, 0.25, 0.15, 0.1]).astype(np.float32)
    sampler = Sampler(ResolvedOptions(seed=1234, temperature=1.0), 4)
    array, draws = mx.array(logits), 2000
    tokens = mx.stack([sampler.sample(array).token for _ in range(draws)]).tolist()
    counts = np.bincount(tokens, minlength=4)
    expected = np.array([0.5, 0.25, 0.15, 0.1]) * draws
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    assert chi_square < 11.3  # the 99th percentile for three degrees of freedom


def test_numbers_are_uniform_over_steps_and_over_seeds() -> None:
    for numbers in (
        [uniform(7, step) for step in range(20_000)],
        [uniform(seed, 0) for seed in range(20_000)],
        [uniform(seed, seed) for seed in range(20_000)],
    ):
        counts = np.histogram(numbers, bins=50, range=(0, 1))[0]
        assert ((counts - 400) ** 2 / 400).sum() < 85.4  # 99.9 % for 49 degrees of freedom
        assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 0.03


@given(seed=st.integers(0, 2**64 - 1), step=st.integers(0, 2**31))
def test_a_number_is_strictly_between_zero_and_one_in_single_precision(
    seed: int, step: int
) -> None:
    u = uniform(seed, step)
    assert np.float32(u) == u
    assert 0 < u < 1


def tokens_of(sampler: Sampler, rows: np.ndarray) -> list[int]:
    return [sampler.sample(mx.array(row)).token_id() for row in rows]


ROWS = np.random.default_rng(5).normal(size=(24, 60)).astype(np.float32)
BUSY = ResolvedOptions(
    seed=99,
    temperature=1.2,
    top_k=30,
    top_p=0.97,
    repetition_penalty=1.3,
    frequency_penalty=0.2,
    penalty_window=6,
)


def test_a_seed_repeats_and_another_differs() -> None:
    first = tokens_of(Sampler(BUSY, 60), ROWS)
    assert tokens_of(Sampler(BUSY, 60), ROWS) == first
    other = ResolvedOptions(seed=100, temperature=1.2)
    assert tokens_of(Sampler(other, 60), ROWS) != first


@pytest.mark.parametrize("cut", [1, 7, 23])
def test_generating_in_two_parts_equals_generating_at_once(cut: int) -> None:
    prompt = [3, 4, 5]
    whole = tokens_of(Sampler(BUSY, 60, prompt), ROWS)
    first = tokens_of(Sampler(BUSY, 60, prompt), ROWS[:cut])
    second = tokens_of(Sampler(BUSY, 60, prompt, generated=first), ROWS[cut:])
    assert first + second == whole


def test_other_requests_and_the_global_generator_change_nothing() -> None:
    alone = tokens_of(Sampler(BUSY, 60), ROWS)
    sampler, neighbour = Sampler(BUSY, 60), Sampler(ResolvedOptions(seed=1), 60)
    among_others: list[int] = []
    for step, row in enumerate(ROWS):
        mx.random.seed(step)
        mx.eval(mx.random.uniform(shape=(3,)))
        neighbour.sample(mx.array(row))
        among_others.append(sampler.sample(mx.array(row)).token_id())
    assert among_others == alone


def test_steps_can_be_built_before_the_last_one_is_read() -> None:
    read_at_once = tokens_of(Sampler(BUSY, 60), ROWS)
    sampler = Sampler(BUSY, 60)
    built = [sampler.sample(mx.array(row)) for row in ROWS]
    assert [step.token_id() for step in built] == read_at_once


def greedy(logits: Sequence[float], **options: Any) -> int:
    resolved = ResolvedOptions(seed=0, temperature=0.0, **options)
    return Sampler(resolved, len(logits)).sample(mx.array(list(logits))).token_id()


def test_greedy_takes_the_likeliest_and_of_equals_the_lowest_id() -> None:
    assert greedy([0.0, 2.0, 2.0, 1.0]) == 1


def test_a_bias_is_added_before_the_choice() -> None:
    assert greedy([0.0, 2.0, 1.0], logit_bias=((1, -1.5), (2, 0.5))) == 2


def test_a_suppressed_token_is_not_saved_by_its_bias() -> None:
    logits = [0.0, 2.0, 1.0]
    assert greedy(logits, logit_bias=((1, 100.0),), suppress_tokens=(1, 1)) == 2


def test_penalties_see_the_biased_logits() -> None:
    # Divided by 2 after the bias, 3 + 2 falls below 3; before it, 3 / 2 + 2 would stay above.
    resolved = ResolvedOptions(
        seed=0,
        temperature=0.0,
        repetition_penalty=2.0,
        penalty_window=1,
        logit_bias=((0, 2.0),),
    )
    sampler = Sampler(resolved, 2, prompt_ids=[0])
    assert sampler.sample(mx.array([3.0, 3.0])).token_id() == 1


def test_top_p_counts_within_what_top_k_kept() -> None:
    # Of all, the best two hold 0.4; of the best two, the first alone holds half.
    logits = np.log([0.2, 0.2, 0.15, 0.15, 0.15, 0.15]).tolist()
    assert set(histogram(logits, temperature=1.0, top_k=2, top_p=0.49)) == {0}


def test_temperature_comes_before_the_filters() -> None:
    logits = np.log([0.6, 0.3, 0.1]).tolist()
    assert set(histogram(logits, temperature=1.0, min_p=0.4)) == {0, 1}
    assert set(histogram(logits, temperature=0.5, min_p=0.4)) == {0}
    assert set(histogram(logits, temperature=3.0, min_p=0.4)) == {0, 1, 2}


def test_padding_is_never_sampled() -> None:
    logits = mx.array([0.0, 1.0, 9.0, 9.0])
    for temperature in (0.0, 1.0):
        sampler = Sampler(ResolvedOptions(seed=2, temperature=temperature), 4, limit=2)
        assert {sampler.sample(logits).token_id() for _ in range(20)} <= {0, 1}


@pytest.mark.parametrize("temperature", [1e-320, 1e-38, 1e-6])
@pytest.mark.parametrize("filters", [{}, {"top_k": 2}, {"top_p": 0.9}, {"min_p": 0.1}])
def test_a_temperature_near_zero_is_nearly_greedy(
    temperature: float, filters: dict[str, Any]
) -> None:
    assert set(histogram([0.0, 0.5, 0.4], temperature=temperature, **filters)) == {1}


@pytest.mark.parametrize(
    "filters", [{}, {"top_k": 2}, {"top_p": 0.9}, {"min_p": 0.1}, {"temperature": 0.0}]
)
@pytest.mark.parametrize(
    "logits",
    [
        [-math.inf] * 3,
        [math.nan] * 3,
        [0.0, math.nan, 1.0],
        [0.0, math.inf, 1.0],
        [math.inf, math.inf, 1.0],
    ],
)
def test_broken_logits_still_give_a_valid_id(logits: list[float], filters: dict[str, Any]) -> None:
    sampler = Sampler(ResolvedOptions(seed=0, **filters), 3)
    assert 0 <= sampler.sample(mx.array(logits)).token_id() < 3


@pytest.mark.parametrize("filters", [{}, {"top_k": 4}, {"top_p": 0.999}, {"min_p": 0.001}])
def test_a_token_at_minus_infinity_is_never_drawn(filters: dict[str, Any]) -> None:
    logits = [-math.inf, 0.0, -math.inf, 0.1, -math.inf]
    array = mx.array(logits)
    edges = (2**-24, 0.5, 1 - 2**-24)
    tokens = {token_at(u, array, **filters) for u in edges}
    assert tokens == {1, 3}


class Recorder:
    """A processor that forces a token and remembers what it was told."""

    def __init__(self, force: Sequence[int]) -> None:
        self.force = force
        self.seen: list[tuple[int, ...]] = []

    def __call__(self, tokens: Sequence[int], logits: mx.array) -> mx.array:
        self.seen.append(tuple(tokens))
        target = self.force[len(tokens)]
        return mx.where(mx.arange(logits.shape[0]) == target, logits, -mx.inf)


def test_processors_are_told_the_tokens_so_far_and_come_before_the_bias() -> None:
    recorder = Recorder([5, 6, 2, 0])
    options = ResolvedOptions(seed=0, temperature=1.0, logit_bias=((1, 90.0),))
    sampler = Sampler(options, 8, [7], [recorder], generated=[5])
    assert [sampler.sample(mx.zeros((8,))).token_id() for _ in range(3)] == [6, 2, 0]
    assert recorder.seen == [(5,), (5, 6), (5, 6, 2)]


def test_processors_run_in_the_order_given() -> None:
    calls: list[str] = []

    def named(name: str) -> Any:
        def process(tokens: Sequence[int], logits: mx.array) -> mx.array:
            calls.append(name)
            return logits

        return process

    sampler = Sampler(ResolvedOptions(seed=0), 4, (), [named("first"), named("second")])
    sampler.sample(mx.zeros((4,)))
    assert calls == ["first", "second"]


def test_a_processor_that_returns_another_shape_is_the_plugins_fault() -> None:
    def shorten(tokens: Sequence[int], logits: mx.array) -> mx.array:
        return logits[:2]

    sampler = Sampler(ResolvedOptions(seed=0), 4, (), [shorten])
    with pytest.raises(PluginError, match=r"shorten.*shape"):
        sampler.sample(mx.zeros((4,)))
