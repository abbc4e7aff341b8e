"""Sigmoid routing: who is chosen, and how much each counts."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from phyla.nn import SigmoidRouter, wide_parameters

SCORES = np.array([0.9, 0.8, 0.7, 0.6, 0.5, 0.4])


def router(**numbers: float | bool) -> SigmoidRouter:
    """A router whose scores are `SCORES` for the token `[1]`."""
    made = SigmoidRouter(1, 6, **{"per_token": 2, **numbers})  # pyright: ignore[reportArgumentType]
    made.proj.weight = mx.array(np.log(SCORES / (1 - SCORES)), mx.float32)[:, None]
    return made


def weights_of(made: SigmoidRouter) -> dict[int, float]:
    chosen, weights = made(mx.ones((1, 1)))
    return {int(index): float(weight) for index, weight in zip(chosen[0], weights[0], strict=True)}


def test_the_best_are_chosen_and_their_weights_sum_to_one() -> None:
    assert weights_of(router()) == pytest.approx({0: 0.9 / 1.7, 1: 0.8 / 1.7})


def test_a_bias_decides_who_is_chosen_and_not_how_much_they_count() -> None:
    made = router(normalize=False, scale=2.0)
    made.expert_bias = mx.array([0.0, 0.0, 0.0, 0.0, 0.0, 1.0])
    assert weights_of(made) == pytest.approx({0: 1.8, 5: 0.8})


def test_the_floor_is_added_to_the_sum() -> None:
    assert weights_of(router(floor=0.3)) == pytest.approx({0: 0.45, 1: 0.4})


def test_only_the_best_groups_are_eligible() -> None:
    # By their two best: 1.7, 1.3 + 0.9 and 0.9.
    made = router(groups=3, kept_groups=1, normalize=False)
    made.expert_bias = mx.array([0.0, 0.0, 0.45, 0.45, 0.0, 0.0])
    assert weights_of(made) == pytest.approx({2: 0.7, 3: 0.6})


def test_a_dropped_group_does_not_win_over_negative_scores() -> None:
    # mlx-lm 0.32 puts zero for experts that are out, which beats what is below zero.
    made = router(groups=3, kept_groups=1, normalize=False)
    made.expert_bias = mx.array([-5.0, -5.0, -6.0, -6.0, -6.0, -6.0])
    assert weights_of(made) == pytest.approx({0: 0.9, 1: 0.8})


def test_scores_are_float32_in_16_bits() -> None:
    made = router()
    _, weights = made(mx.ones((1, 1), mx.bfloat16))
    assert weights.dtype == mx.float32


def test_a_router_without_a_bias_has_no_parameter_for_one() -> None:
    assert "expert_bias" not in router(bias=False)
    assert weights_of(router(bias=False)) == pytest.approx(weights_of(router()))


def test_the_projection_and_the_bias_stay_in_float32_in_a_model_in_16_bits() -> None:
    assert wide_parameters(router()) == {"proj.weight", "expert_bias"}
