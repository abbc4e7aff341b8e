"""Options come from the request, the caller, the checkpoint and us, in that order."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phyla.engine.resolve import (
    ResolvedOptions,
    check_generation_config,
    check_token_ids,
    checkpoint_options,
    resolve,
)
from phyla.errors import CheckpointError, RequestError
from phyla.options import Options

NOTHING = Options()
LAYER = st.none() | st.floats(0, 2)


def resolved(
    request: Options = NOTHING, defaults: Options = NOTHING, **config: Any
) -> ResolvedOptions:
    return resolve(request, defaults, config)


def test_with_nothing_said_our_own_defaults_hold() -> None:
    ours = resolved()
    assert ours == ResolvedOptions(seed=ours.seed)
    assert (ours.temperature, ours.top_k, ours.top_p, ours.min_p) == (0.7, 0, 1.0, 0.0)
    assert ours.max_tokens is None


@given(request=LAYER, defaults=LAYER, config=LAYER)
def test_the_first_layer_that_says_a_value_wins(
    request: float | None, defaults: float | None, config: float | None
) -> None:
    found = resolve(
        Options(temperature=request), Options(temperature=defaults), {"temperature": config}
    )
    expected = next(value for value in (request, defaults, config, 0.7) if value is not None)
    assert found.temperature == expected


def test_a_value_that_is_zero_or_empty_still_hides_the_layer_below() -> None:
    found = resolved(Options(top_k=0, stop=()), Options(top_k=5, stop=("x",)), top_k=7)
    assert (found.top_k, found.stop) == (0, ())


def test_every_option_reaches_the_resolved_options() -> None:
    said: dict[str, Any] = {
        "max_tokens": 3,
        "temperature": 0.5,
        "top_k": 4,
        "top_p": 0.8,
        "min_p": 0.1,
        "repetition_penalty": 1.2,
        "presence_penalty": 0.3,
        "frequency_penalty": 0.4,
        "penalty_window": 64,
        "logit_bias": {9: 1.0, 2: -1.0},
        "suppress_tokens": (5,),
        "seed": 12,
        "stop": ("END",),
        "stop_token_ids": (6,),
        "ignore_eos": True,
        "reasoning_budget": 8,
        "logprobs": True,
        "top_logprobs": 2,
    }
    assert set(said) == set(Options.model_fields)
    expected = {**said, "logit_bias": ((2, -1.0), (9, 1.0))}
    assert dataclasses.asdict(resolved(Options(**said))) == expected


def test_a_seed_is_drawn_when_none_is_given() -> None:
    seeds = {resolved().seed for _ in range(20)}
    assert len(seeds) == 20
    assert all(0 <= seed < 2**53 for seed in seeds)


def test_a_given_seed_is_kept() -> None:
    assert resolved(Options(seed=2**64 - 1)).seed == 2**64 - 1


def test_asking_for_alternatives_asks_for_log_probabilities() -> None:
    assert resolved(Options(top_logprobs=1)).logprobs
    assert not resolved(Options(top_logprobs=0)).logprobs


@pytest.mark.parametrize(
    ("config", "temperature"),
    [
        ({"do_sample": False, "temperature": 0.6}, 0.0),
        ({"do_sample": False}, 0.0),
        ({"do_sample": True, "temperature": 0.6}, 0.6),
        ({"do_sample": True}, 1.0),
        ({"do_sample": None, "temperature": 0.6}, 0.6),
        ({"temperature": 0.6}, 0.6),
        ({"temperature": None}, 0.7),
        ({"eos_token_id": 2}, 0.7),
    ],
)
def test_do_sample_decides_with_the_temperature(config: dict[str, Any], temperature: float) -> None:
    assert resolved(**config).temperature == temperature


def test_a_temperature_of_the_caller_overrides_do_sample_false() -> None:
    found = resolved(Options(temperature=0.9), do_sample=False, top_k=20)
    assert (found.temperature, found.top_k) == (0.9, 20)


def test_generation_config_gives_what_it_is_read_for_and_no_more() -> None:
    found = checkpoint_options(
        {
            "do_sample": True,
            "temperature": 1,
            "top_k": 20,
            "top_p": 0.95,
            "min_p": 0.05,
            "repetition_penalty": 1.05,
            "max_new_tokens": 2048,
            "max_length": 20,
            "suppress_tokens": [4, 5],
            "eos_token_id": [1, 2],
            "num_beams": 4,
            "_from_model_config": True,
        }
    )
    assert found == Options(
        temperature=1.0,
        top_k=20,
        top_p=0.95,
        min_p=0.05,
        repetition_penalty=1.05,
        max_tokens=2048,
        suppress_tokens=(4, 5),
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("do_sample", 1),
        ("do_sample", "false"),
        ("temperature", "0.7"),
        ("temperature", True),
        ("temperature", -1.0),
        ("temperature", float("nan")),
        ("top_k", 2.5),
        ("top_k", -1),
        ("top_p", 0.0),
        ("top_p", [0.9]),
        ("min_p", 2),
        ("repetition_penalty", 0),
        ("max_new_tokens", "all"),
        ("max_new_tokens", 0),
        ("suppress_tokens", 3),
        ("suppress_tokens", ["a"]),
        ("suppress_tokens", [-1]),
    ],
)
def test_a_wrong_value_in_generation_config_is_named(key: str, value: object) -> None:
    with pytest.raises(CheckpointError) as caught:
        checkpoint_options({key: value})
    error = caught.value
    assert (error.file, error.field) == ("generation_config.json", key)
    assert error.found is value or error.found == value
    assert key in str(error)
    assert repr(value) in str(error)
    assert error.hint


def test_ids_of_the_vocabulary_pass() -> None:
    options = ResolvedOptions(
        seed=0,
        logit_bias=((0, 1.0), (9, 1.0)),
        suppress_tokens=(0, 9),
        stop_token_ids=(9,),
        top_logprobs=10,
    )
    check_token_ids(options, 10)


@pytest.mark.parametrize(
    ("field", "value", "found"),
    [
        ("logit_bias", ((3, 1.0), (10, 1.0)), 10),
        ("logit_bias", ((-1, 1.0),), -1),
        ("suppress_tokens", (10,), 10),
        ("stop_token_ids", (1, 11), 11),
        ("suppress_tokens", tuple(range(10)), 10),
        ("top_logprobs", 11, 11),
    ],
)
def test_what_the_vocabulary_lacks_is_a_request_error(field: str, value: Any, found: int) -> None:
    with pytest.raises(RequestError) as caught:
        check_token_ids(ResolvedOptions(**{"seed": 0, field: value}), 10)
    assert (caught.value.field, caught.value.found) == (field, found)
    assert field in str(caught.value)


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"suppress_tokens": [1, 10]}, "suppress_tokens"),
        ({"suppress_tokens": list(range(10))}, "suppress_tokens"),
        ({"suppress_tokens": "1"}, "suppress_tokens"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 2.0}, "top_p"),
    ],
)
def test_a_recommendation_that_no_request_can_follow_is_found_before_any(
    config: dict[str, Any], field: str
) -> None:
    with pytest.raises(CheckpointError) as caught:
        check_generation_config(config, 10)
    assert (caught.value.field, caught.value.file) == (field, "generation_config.json")


def test_recommendations_that_can_be_followed_pass() -> None:
    check_generation_config({}, 10)
    check_generation_config({"suppress_tokens": [0, 9], "temperature": 0.6, "max_length": "?"}, 10)
