"""Rotations: what they leave alone, and which side of LongRoPE a sequence is on."""

from __future__ import annotations

import math
from typing import Any

import mlx.core as mx
import pytest
from pydantic import ValidationError

from phyla.errors import ConfigError
from phyla.family import DecoderConfig, RopeConfig, Step, read_rope
from phyla.nn import Rope

LONG = RopeConfig(
    theta=100.0,
    type="longrope",
    short_factor=(1.0, 1.0),
    long_factor=(2.0, 4.0),
    original_max_position_embeddings=16,
)


def step(positions: list[int], *extents: int) -> Step:
    rows = mx.array([positions] * len(extents))
    return Step(ids=mx.zeros_like(rows), positions=rows, extents=extents)


def test_position_zero_changes_nothing() -> None:
    x = mx.random.normal((1, 2, 1, 8))
    assert mx.allclose(Rope(RopeConfig(theta=1e4), 8)(step([0], 1))(x), x)


def test_a_rotation_keeps_lengths_and_depends_on_distance_only() -> None:
    rope = Rope(RopeConfig(theta=1e4), 8)
    x, y = mx.random.normal((2, 1, 1, 1, 8))

    def product(left: int, right: int) -> mx.array:
        return (rope(step([left], 1))(x) * rope(step([right], 1))(y)).sum()

    assert mx.allclose(product(3, 5), product(103, 105), atol=1e-4)
    turned = rope(step([9], 1))(x)
    assert mx.allclose((turned * turned).sum(), (x * x).sum(), atol=1e-4)


def test_a_partial_rotation_passes_the_rest() -> None:
    rope = Rope(RopeConfig(theta=1e4, partial_rotary_factor=0.5), 8)
    x = mx.random.normal((1, 2, 3, 8))
    turned = rope(step([4, 5, 6], 7))(x)
    assert mx.array_equal(turned[..., 4:], x[..., 4:])
    assert not mx.allclose(turned[..., :4], x[..., :4])


def test_longrope_chooses_once_by_how_long_a_sequence_may_become() -> None:
    rope = Rope(LONG, 4)
    short, long = rope(step([3], 16)), rope(step([3], 17))
    assert not mx.allclose(short.cos, long.cos)
    both = rope(step([3], 16, 17))
    assert mx.allclose(both.cos[:1], short.cos)
    assert mx.allclose(both.cos[1:], long.cos)


@pytest.mark.parametrize(
    "raw",
    [
        {"rope_theta": 5.0, "rope_scaling": {"type": "linear", "factor": 2.0}},
        {"rope_theta": 5.0, "rope_scaling": {"rope_type": "linear", "factor": 2.0}},
        {"rope_parameters": {"rope_theta": 5.0, "rope_type": "linear", "factor": 2.0}},
        {"rope_parameters": {"rope_theta": 5.0, "type": "linear", "factor": 2.0}},
    ],
)
def test_every_spelling_reads_the_same(raw: dict[str, object]) -> None:
    config = RopeConfig.model_validate(read_rope(raw, default_theta=None))
    assert (config.theta, config.type, config.factor) == (5.0, "linear", 2.0)


def test_no_theta_is_none_unless_the_model_has_a_default() -> None:
    assert read_rope({}, default_theta=None) is None
    assert read_rope({}, default_theta=10.0) == {"rope_theta": 10.0}


def test_a_type_without_its_keys_is_refused() -> None:
    with pytest.raises(ValidationError, match="low_freq_factor"):
        RopeConfig(theta=1.0, type="llama3", factor=8.0)


BASE = {
    "vocab_size": 8, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
    "num_attention_heads": 2, "rope_theta": 1e4,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
LONGROPE = {
    "rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [2.0] * 4,
    "original_max_position_embeddings": 64,
}  # fmt: skip


@pytest.mark.parametrize("scaling", [None, LLAMA3, YARN, LONGROPE, {"type": "linear", "factor": 2}])
def test_scalings_as_published_are_read(scaling: dict[str, Any] | None) -> None:
    assert DecoderConfig.read({**BASE, "rope_scaling": scaling}).rope.theta == 1e4


@pytest.mark.parametrize(
    "changed",
    [
        {"rope_scaling": 5},
        {"rope_scaling": "linear"},
        {"rope_scaling": False},
        {"rope_parameters": [1]},
        {"rope_scaling": {"factor": 2.0}},
        {"rope_scaling": {**YARN, "rope_type": ["yarn"]}},
        {"rope_scaling": {**YARN, "rope_type": {}}},
        {"rope_scaling": {**YARN, "rope_type": 5}},
        {"rope_scaling": {**YARN, "rope_type": "spiral"}},
        {"rope_scaling": YARN, "rope_theta": 1.0},
        {"rope_scaling": {**YARN, "original_max_position_embeddings": 0}},
        {"rope_scaling": {**YARN, "beta_fast": -1.0}},
        {"rope_scaling": {**YARN, "factor": math.nan}},
        {"rope_scaling": {**YARN, "attention_factor": math.inf}},
        {"rope_scaling": {**LONGROPE, "original_max_position_embeddings": 1}},
        {"rope_scaling": {**LONGROPE, "short_factor": [1.0] * 3}},
        {"rope_scaling": {**LONGROPE, "long_factor": [1.0] * 5}},
        {"rope_scaling": {**LONGROPE, "long_factor": [1.0, 1.0, 1.0, 0.0]}},
        {"rope_scaling": {"rope_type": "factors", "factors": [1.0]}},
        {"rope_scaling": {**LLAMA3, "low_freq_factor": 4.0}},
        {"rope_scaling": {**LLAMA3, "original_max_position_embeddings": 0}},
        {"partial_rotary_factor": 0.1},
        {"head_dim": 7},
        {"rope_theta": math.inf},
        {"rms_norm_eps": math.nan},
        {"hidden_act": "gelu"},
        {"hidden_act": 5},
    ],
)
def test_keys_that_could_not_be_computed_with_are_the_checkpoints_fault(
    changed: dict[str, Any],
) -> None:
    with pytest.raises(ConfigError):
        DecoderConfig.read({**BASE, **changed})


def test_the_other_name_of_silu_is_known() -> None:
    for name in ("silu", "swish", None):
        assert DecoderConfig.read({**BASE, "hidden_act": name}).vocab_size == 8
