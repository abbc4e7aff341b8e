from __future__ import annotations

import numpy as np
import PIL.Image  # noqa: TID253  (the tests are about it)
import pytest

from phyla.media import resized, resized_floats

EDGES = np.zeros((40, 30, 3), np.uint8)
EDGES[10:20, 7:] = (255, 128, 3)


@pytest.mark.parametrize("size", [(20, 15), (80, 61), (40, 15), (3, 200)])
@pytest.mark.parametrize("resample", [2, 3])
def test_rows_are_resized_first_whatever_the_shape(size, resample):
    found = resized(EDGES, size, resample)
    assert (found.shape, found.dtype) == ((*size, 3), np.uint8)
    across = PIL.Image.fromarray(EDGES).resize((size[1], 40), PIL.Image.Resampling(resample))
    for row in range(40):
        line = PIL.Image.fromarray(EDGES[row : row + 1])
        expected = np.asarray(line.resize((size[1], 1), PIL.Image.Resampling(resample)))
        assert (np.asarray(across)[row] == expected[0]).all()
    down = np.asarray(across.resize((size[1], size[0]), PIL.Image.Resampling(resample)))
    assert (found == down).all()


def test_a_picture_of_the_right_size_is_left_as_it_is():
    assert resized(EDGES, (40, 30)) is EDGES
    assert (resized_floats(EDGES, (40, 30)) == EDGES).all()


def test_floats_are_neither_cut_nor_rounded():
    found = resized_floats(EDGES, (80, 60))
    assert (found.shape, found.dtype) == ((80, 60, 3), np.float32)
    assert found.min() < -1
    assert found.max() > 256
    # A filter that does not overshoot gives the same as with bytes, but for their rounding.
    assert np.abs(resized_floats(EDGES, (80, 60), 2) - resized(EDGES, (80, 60), 2)).max() <= 1


def test_pictures_that_were_turned_are_resized_too():
    turned = EDGES.transpose(1, 0, 2)[::-1]
    assert (resized(turned, (15, 20)) == resized(turned.copy(), (15, 20))).all()
