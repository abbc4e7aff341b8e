from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phyla.media import mel_filters

SCALES = st.sampled_from(["htk", "slaney"])


@given(st.integers(1, 40), st.sampled_from([256, 512]), SCALES, st.floats(0, 500))
def test_triangles_overlap_so_that_they_add_up_to_one(bins, transform, scale, low):
    filters = mel_filters(bins, transform, rate=16000, low=low, high=6000.0, scale=scale)
    assert filters.shape == (transform // 2 + 1, bins)
    assert filters.min() >= 0
    assert filters.max() <= 1
    assert filters.sum(axis=1).max() <= 1 + 1e-9
    hertz = np.linspace(0, 8000, transform // 2 + 1)
    assert not filters[(hertz < low) | (hertz > 6000)].any()


def test_equal_areas_are_equal():
    filters = mel_filters(20, 1 << 16, rate=16000, scale="slaney", equal_area=True)
    areas = filters.sum(axis=0) * 8000 / (1 << 15)
    assert areas == pytest.approx(np.ones(20), rel=1e-2)


@pytest.mark.parametrize(
    ("scale", "middle"),
    [
        ("htk", 700 * (10 ** (np.log10(1 + 8000 / 700) / 2) - 1)),  # half of its mels
        ("slaney", 1000 * np.exp((45.245640471924965 / 2 - 15) * np.log(6.4) / 27)),
    ],
)
def test_one_bin_is_highest_at_half_of_the_mels(scale, middle):
    filters = mel_filters(1, 1 << 14, rate=16000, scale=scale)
    assert filters[:, 0].argmax() * 16000 / (1 << 14) == pytest.approx(middle, abs=2)


def test_slaneys_scale_is_linear_up_to_a_kilohertz():
    filters = mel_filters(4, 16000, rate=16000, high=1000.0, scale="slaney")
    assert filters.argmax(axis=0).tolist() == [200, 400, 600, 800]
