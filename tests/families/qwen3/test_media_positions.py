"""Where tokens stand around pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from phyla.family import MediaRun
from phyla_families.qwen3.positions import multimodal_positions

if TYPE_CHECKING:
    from collections.abc import Sequence


def run(start: int, rows: int, columns: int, item: int = 0) -> MediaRun:
    return MediaRun(
        start=start, stop=start + rows * columns, modality="image", item=item, grid=(rows, columns)
    )


def test_a_picture_spreads_in_rows_and_columns() -> None:
    assert multimodal_positions(13, [run(4, 2, 3)]).tolist() == [
        [0, 1, 2, 3, 4, 4, 4, 4, 4, 4, 7, 8, 9],
        [0, 1, 2, 3, 4, 4, 4, 5, 5, 5, 7, 8, 9],
        [0, 1, 2, 3, 4, 5, 6, 4, 5, 6, 7, 8, 9],
    ]


def test_pairs_of_frames_follow_one_another_like_pictures() -> None:
    found = multimodal_positions(19, [run(4, 2, 2), run(11, 2, 2)])
    assert found[0, 4:8].tolist() == [4] * 4
    assert found[0, 11:15].tolist() == [9] * 4
    assert found.max() + 1 - 19 == -4


def test_text_counts_up_on_all_axes() -> None:
    assert (multimodal_positions(7, []) == np.arange(7)).all()


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4), st.integers(1, 4)), max_size=4),
    st.integers(0, 5),
)
def test_a_beginning_stands_where_it_stood_before_more_followed(
    parts: Sequence[tuple[int, int, int]], tail: int
) -> None:
    runs: list[MediaRun] = []
    lengths: list[int] = [0]
    for gap, rows, columns in parts:
        runs.append(run(lengths[-1] + gap, rows, columns, len(runs)))
        lengths.append(runs[-1].stop)
    whole = multimodal_positions(lengths[-1] + tail, runs)
    assert whole.dtype == np.int32
    for count, length in enumerate(lengths):
        assert (multimodal_positions(length, runs[:count]) == whole[:, :length]).all()
