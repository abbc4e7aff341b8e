"""Options: reading them, and which of several layers decides."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phyla.errors import RequestError
from phyla.options import Options, read_options

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "max_tokens": st.integers(1, 10_000),
    "temperature": st.floats(0, 5),
    "top_k": st.integers(0, 100),
    "top_p": st.floats(0, 1, exclude_min=True),
    "min_p": st.floats(0, 1),
    "repetition_penalty": st.floats(0.1, 2),
    "presence_penalty": st.floats(-2, 2),
    "frequency_penalty": st.floats(-2, 2),
    "penalty_window": st.integers(1, 100),
    "logit_bias": st.dictionaries(st.integers(0, 100), st.floats(-9, 9), max_size=3),
    "suppress_tokens": st.lists(st.integers(0, 100), max_size=3).map(tuple),
    "seed": st.integers(0, 2**64 - 1),
    "stop": st.lists(st.text(min_size=1), max_size=3).map(tuple),
    "stop_token_ids": st.lists(st.integers(0, 100), max_size=3).map(tuple),
    "ignore_eos": st.booleans(),
    "reasoning_budget": st.integers(0, 100),
    "logprobs": st.booleans(),
    "top_logprobs": st.integers(0, 100),
}
OPTIONS = st.fixed_dictionaries({}, optional=VALUES).map(lambda values: Options(**values))


def test_the_strategies_cover_every_option():
    assert VALUES.keys() == Options.model_fields.keys()


def test_nothing_is_decided_by_default():
    assert read_options(None) == read_options({}) == Options()
    assert Options().model_dump(exclude_none=True) == {}


@given(OPTIONS)
def test_options_survive_being_sent_and_read(options):
    assert Options.model_validate_json(options.model_dump_json()) == options
    assert read_options(options) is options
    assert read_options(options.model_dump(exclude_none=True)) == options


@given(OPTIONS, OPTIONS, OPTIONS)
def test_the_first_layer_that_says_a_value_decides(request_, caller, checkpoint):
    merged = request_.over(caller, checkpoint)
    for name in Options.model_fields:
        said = [
            value
            for layer in (request_, caller, checkpoint)
            if (value := getattr(layer, name)) is not None
        ]
        assert getattr(merged, name) == (said[0] if said else None)


@given(OPTIONS, OPTIONS, OPTIONS)
def test_layers_may_be_merged_two_at_a_time(a, b, c):
    assert a.over(b, c) == a.over(b).over(c) == a.over(b.over(c))


@given(OPTIONS)
def test_open_options_change_nothing(options):
    assert options.over() == options.over(Options()) == Options().over(options) == options


def test_an_empty_value_is_said_and_not_open():
    lower = Options(stop=("end",), logit_bias={1: 2.0}, temperature=0.7)
    merged = Options(stop=(), logit_bias={}, temperature=0).over(lower)
    assert (merged.stop, merged.logit_bias, merged.temperature) == ((), {}, 0)


def test_one_stop_text_is_a_tuple_of_one():
    assert read_options({"stop": "end"}).stop == ("end",)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_tokens", 0),
        ("max_tokens", "many"),
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("top_k", -1),
        ("top_p", 0),
        ("top_p", 1.1),
        ("top_p", math.nan),
        ("min_p", -0.1),
        ("min_p", math.nan),
        ("repetition_penalty", 0),
        ("presence_penalty", math.nan),
        ("frequency_penalty", math.inf),
        ("penalty_window", 0),
        ("logit_bias", {"word": 1.0}),
        ("logit_bias", {3: math.nan}),
        ("seed", -1),
        ("seed", 2**64),
        ("stop", ""),
        ("stop", ["end", ""]),
        ("top_logprobs", -1),
        ("temprature", 0.5),
    ],
)
def test_a_wrong_option_is_named(field, value):
    with pytest.raises(RequestError) as failure:
        read_options({field: value})
    assert re.split(r"[.\[]", str(failure.value.field))[0] == field
    assert f"'{field}" in str(failure.value)
    assert failure.value.fault == "request"


@pytest.mark.parametrize("wrong", [5, 0, "abc", "", [], [("top_k", 1)], b"x", True])
def test_options_that_are_no_mapping_are_the_requests_fault(wrong):
    with pytest.raises(RequestError, match="options should be a mapping") as failure:
        read_options(wrong)
    assert failure.value.field == "options"


def test_a_misspelt_option_is_told_the_one_it_resembles():
    with pytest.raises(RequestError) as failure:
        read_options({"temprature": 0.5})
    assert str(failure.value) == "unknown option 'temprature'; did you mean 'temperature'?"
    assert failure.value.field == "temprature"


@pytest.mark.parametrize("name", ["zzz", 5])
def test_an_option_that_resembles_none_is_told_them_all(name):
    with pytest.raises(RequestError, match=r"unknown option .*max_tokens") as failure:
        read_options({name: 1})
    assert failure.value.field == str(name)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"suppress_tokens": 5}, "option 'suppress_tokens' should be a list; found 5."),
        ({"max_tokens": "many"}, "option 'max_tokens' should be an integer; found 'many'."),
        ({"ignore_eos": "perhaps"}, "option 'ignore_eos' should be true or false; found"),
        ({"logit_bias": [1]}, "option 'logit_bias' should be a mapping; found [1]."),
        ({"stop": [1]}, "option 'stop[0]' should be text; found 1."),
        ({"logit_bias": {"word": 1.0}}, "option 'logit_bias.word' should be an integer; found"),
    ],
)
def test_what_is_wrong_is_said_in_plain_words(options, text):
    with pytest.raises(RequestError) as failure:
        read_options(options)
    assert str(failure.value).startswith(text)
