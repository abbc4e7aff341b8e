from __future__ import annotations

import mlx.core as mx
import numpy as np

from phyla.family import RopeConfig, Step
from phyla.nn import Rope

PUBLISHED = RopeConfig.model_validate(
    {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25}
)


def angles(config: RopeConfig) -> np.ndarray:
    """By how much the first position turns each of the pairs of a head of 512."""
    step = Step(ids=mx.array([[0]]), positions=mx.array([[1]]), extents=(2,))
    rotation = Rope(config, 512)(step)
    cos, sin = np.array(rotation.cos)[0, 0, 0], np.array(rotation.sin)[0, 0, 0]
    return np.arctan2(sin[256:], cos[256:])


def test_a_quarter_of_the_pairs_turn_at_the_frequencies_of_a_whole_head() -> None:
    found = angles(PUBLISHED)
    assert np.count_nonzero(found) == 64
    np.testing.assert_allclose(found[:64], 1e6 ** (-2 * np.arange(64) / 512), rtol=1e-5)
    assert not found[64:].any()


def test_a_factor_slows_all_of_them() -> None:
    stretched = PUBLISHED.model_copy(update={"factor": 4.0})
    np.testing.assert_allclose(angles(stretched), angles(PUBLISHED) / 4, rtol=1e-5)


def test_a_dimension_turns_with_the_one_half_a_head_away() -> None:
    step = Step(ids=mx.array([[0]]), positions=mx.array([[1]]), extents=(2,))
    head = np.zeros(512, np.float32)
    head[3], head[70], head[300] = 1.0, 2.0, 3.0
    turned = np.array(Rope(PUBLISHED, 512)(step)(mx.array(head)[None, None, None]))[0, 0, 0]
    angle = 1e6 ** (-6 / 512)
    assert set(np.flatnonzero(turned)) == {3, 259, 70, 44, 300}
    np.testing.assert_allclose(turned[[3, 259]], [np.cos(angle), np.sin(angle)], rtol=1e-5)
    assert turned[70] == 2.0
