"""M-RoPE: which axis turns which pair, and that text turns as it always did."""

from __future__ import annotations

from collections import Counter

import mlx.core as mx
import numpy as np
import pytest
from pydantic import ValidationError

from phyla.family import RopeConfig, Step, read_rope
from phyla.nn import Rope
from phyla.nn.mrope import interleaved_axes


def step(axes: list[list[int]] | None, positions: list[int]) -> Step:
    rows = mx.array([positions])
    return Step(
        ids=mx.zeros_like(rows),
        positions=rows,
        extents=(len(positions),),
        axes=None if axes is None else mx.array(axes)[:, None],
    )


@pytest.mark.parametrize(
    ("sections", "pairs"), [((24, 20, 20), 64), ((11, 11, 10), 32), ((3, 3, 2), 8), ((1, 1, 0), 2)]
)
def test_each_axis_gets_as_many_pairs_as_its_section_says(
    sections: tuple[int, int, int], pairs: int
) -> None:
    found = Counter(interleaved_axes(sections, pairs))
    assert tuple(found[axis] for axis in range(3)) == sections


def test_pairs_are_dealt_out_in_turn_until_a_section_is_full() -> None:
    assert interleaved_axes((24, 20, 20), 64) == [0, 1, 2] * 20 + [0] * 4
    assert interleaved_axes((11, 11, 10), 32) == [0, 1, 2] * 10 + [0, 1]


def test_equal_axes_turn_like_one() -> None:
    rope = Rope(RopeConfig(theta=1e4, mrope_section=(3, 3, 2)), 16)
    places = [3, 4, 7]
    one, three = rope(step(None, places)), rope(step([places] * 3, places))
    assert mx.array_equal(one.cos, three.cos)
    assert mx.array_equal(one.sin, three.sin)


def test_each_pair_turns_by_its_own_axis() -> None:
    rope = Rope(RopeConfig(theta=1e4, mrope_section=(2, 1, 1)), 8)
    axes = [[1, 5], [2, 6], [3, 9]]
    found = np.array(rope(step(axes, axes[0])).cos)[0, 0]
    for pair, axis in enumerate([0, 1, 2, 0]):
        alone = np.array(rope(step(None, axes[axis])).cos)[0, 0]
        assert np.array_equal(found[:, pair], alone[:, pair])


def test_sections_are_read_from_every_spelling() -> None:
    inside = {
        "rope_theta": 1.0,
        "rope_scaling": {"rope_type": "default", "mrope_section": [1, 1, 0]},
    }
    outside = {"rope_theta": 1.0, "mrope_section": [1, 1, 0]}
    for raw in (inside, outside):
        keys = read_rope(raw, default_theta=None)
        assert keys is not None
        assert RopeConfig.model_validate(keys).mrope_section == (1, 1, 0)


@pytest.mark.parametrize("sections", [(1, 1), (1, -1, 1), (0, 0, 0), 3])
def test_sections_that_make_no_sense_are_refused(sections: object) -> None:
    with pytest.raises(ValidationError):
        RopeConfig.model_validate({"rope_theta": 1e4, "mrope_section": sections})
