"""MiniCPM-V 4.7 lays pictures out on canvases; text goes on behind the longer side."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from phyla.family import MediaRun
from phyla.testing import Forward, read_tiny
from phyla_families.minicpm.canvas import canvas_positions
from phyla_families.minicpm.tower_config import CanvasMarkers

TABLE = read_tiny(Path(__file__).with_name("tiny.json"))
MARKERS = CanvasMarkers(
    image_start_id=10, image_end_id=11, slice_start_id=12, slice_end_id=13, newline_id=14
)


class Prompt:
    """Ids and runs, written piece by piece."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.runs: list[MediaRun] = []

    def text(self, *ids: int) -> Prompt:
        self.ids += ids
        return self

    def soft(self, rows: int, cols: int) -> Prompt:
        start = len(self.ids)
        stop = start + rows * cols
        self.runs.append(
            MediaRun(start=start, stop=stop, modality="image", item=0, grid=(rows, cols))
        )
        self.ids += [5] * (rows * cols)
        return self

    def picture(self, overview: tuple[int, int], cell: tuple[int, int], columns: int, rows: int):
        self.text(10).soft(*overview).text(11)
        for row in range(rows):
            self.text(*[14] * (row > 0))
            for _ in range(columns):
                self.text(12).soft(*cell).text(13)
        return self

    def places(self, length: int | None = None) -> list[tuple[int, ...]]:
        ids = np.array(self.ids[:length], np.int32)
        runs = [run for run in self.runs if run.stop <= len(ids)]
        axes = canvas_positions(ids, runs, MARKERS)
        assert axes.dtype == np.int32
        return [tuple(column) for column in axes.T.tolist()]


def test_the_worked_example_stands_where_it_should() -> None:
    prompt = Prompt().text(1, 2).picture((7, 9), (10, 7), columns=2, rows=1).text(3, 4)
    places = prompt.places()
    first, second, third = prompt.runs
    assert places[:3] == [(0, 0, 0), (1, 1, 1), (2, 1, 1)]
    assert places[first.start : first.start + 2] == [(2, 2, 2), (2, 2, 4)]
    assert places[first.stop - 1 : first.stop + 1] == [(2, 11, 15), (2, 12, 16)]
    assert places[second.start - 1] == (2, 2, 2)
    assert places[second.stop] == (2, 11, 8)
    assert places[third.start - 1] == (2, 2, 9)
    assert places[third.stop] == (2, 11, 15)
    assert places[-2:] == [(17, 17, 17), (18, 18, 18)]
    assert max(map(max, places)) + 1 - len(places) == -194


def test_a_line_ends_beyond_its_row() -> None:
    prompt = Prompt().picture((2, 2), (2, 3), columns=2, rows=2)
    places = prompt.places()
    end = prompt.ids.index(14)
    assert places[end] == (0, 1, 6)
    assert places[end + 1] == (0, 2, 0)
    # `<image>` at the very start has nothing before it to stand on.
    assert places[0] == (0, 0, 0)


def test_without_slices_an_overview_is_its_own_canvas() -> None:
    places = Prompt().text(1).picture((2, 3), (0, 0), columns=0, rows=0).text(14, 1).places()
    assert places == [
        (0, 0, 0), (1, 0, 0), (1, 1, 1), (1, 1, 2), (1, 1, 3), (1, 2, 1), (1, 2, 2), (1, 2, 3),
        (1, 3, 4), (1, 1, 1), (5, 5, 5),
    ]  # fmt: skip


shapes = st.tuples(st.integers(1, 4), st.integers(1, 4))
pictures = st.tuples(shapes, shapes, st.integers(0, 3), st.integers(1, 3))


@settings(max_examples=30)
@given(st.lists(st.tuples(pictures, st.lists(st.sampled_from([1, 2, 14]), max_size=4)), max_size=4))
def test_a_beginning_stands_the_same_whatever_follows(
    parts: list[tuple[tuple[tuple[int, int], tuple[int, int], int, int], list[int]]],
) -> None:
    prompt = Prompt().text(1)
    ends = [1]
    for picture, text in parts:
        prompt.picture(*picture)
        ends.append(len(prompt.ids))
        for token in text:
            prompt.text(token)
            ends.append(len(prompt.ids))
    whole = prompt.places()
    for end in ends:
        assert prompt.places(end) == whole[:end]


def test_the_earlier_version_counts_soft_tokens_like_any(tmp_path: Path) -> None:
    prompt = Prompt().text(1).picture((2, 2), (2, 2), columns=1, rows=1)
    ids = np.array(prompt.ids, np.int32)
    assert (
        Forward(TABLE["4.6"].write(tmp_path / "a")).model.media_positions(ids, prompt.runs) is None
    )
    later = Forward(TABLE["4.7, untied"].write(tmp_path / "b")).model
    found = later.media_positions(ids, prompt.runs)
    assert found is not None
    assert found.shape == (3, len(ids))
