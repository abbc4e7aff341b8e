"""Where the tokens of a prompt with pictures stand, in MiniCPM-V 4.7: pictures lie on canvases.

Text counts on, the same on all three axes (time, row, column). A picture is an overview and perhaps
the slices that show its parts larger. All of it stands at one time; the slices tile a canvas as
they tile the picture, the overview is stretched over it, and the marks around them stand at
corners. Text goes on behind the longer side of the canvas.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from phyla.family import MediaRun
    from phyla_families.minicpm.tower_config import CanvasMarkers

# What stands between two slices of a row: `</slice><slice>`.
_SIDE_BY_SIDE = 2


@dataclass(frozen=True)
class Picture:
    """An overview and its slices, row by row."""

    overview: MediaRun
    slices: list[MediaRun] = field(default_factory=list)

    @property
    def columns(self) -> int:
        """Slices to a row: as many as stand side by side before a line ends."""
        count = len(self.slices)
        for index in range(1, count):
            if self.slices[index].start - self.slices[index - 1].stop > _SIDE_BY_SIDE:
                return index if count % index == 0 else count
        return count

    @property
    def canvas(self) -> tuple[int, int]:
        """Rows and columns of soft tokens that the picture takes on its canvas."""
        if not self.slices:
            return _grid(self.overview)
        height, width = _grid(self.slices[0])
        return len(self.slices) // self.columns * height, self.columns * width


def canvas_positions(
    ids: NDArray[np.int32], runs: Sequence[MediaRun], markers: CanvasMarkers
) -> NDArray[np.int32]:
    """`[3, T]`: time, row and column of each of the T tokens.

    Args:
        ids: the prompt.
        runs: its soft tokens, each run a picture or a slice of one.
        markers: the tokens that stand around them.
    """
    places = np.empty((3, len(ids)), dtype=np.int32)
    count = at = 0  # where text goes on, and the first token without a place
    marks = markers.ids
    for picture in _pictures(ids, runs, markers):
        start = max(picture.overview.start - 1, 0)
        if start > at:
            places[:, at:start] = np.arange(count, count + start - at)
            count += start - at
        # Marks and line ends that follow belong to the picture, in whose origin they stand.
        stop = (picture.slices or [picture.overview])[-1].stop
        while stop < len(ids) and int(ids[stop]) in marks:
            stop += 1
        _place(places[:, :stop], picture, start, count)
        count += max(picture.canvas) + 1
        at = stop
    places[:, at:] = np.arange(count, count + len(ids) - at)
    return places


def _pictures(
    ids: NDArray[np.int32], runs: Sequence[MediaRun], markers: CanvasMarkers
) -> list[Picture]:
    pictures: list[Picture] = []
    for run in sorted(runs, key=lambda run: run.start):
        if pictures and ids[run.start - 1] == markers.slice_start_id:
            pictures[-1].slices.append(run)
        else:
            pictures.append(Picture(run))
    return pictures


def _place(places: NDArray[np.int32], picture: Picture, start: int, origin: int) -> None:
    """Fill in a picture, which starts with its `<image>` and takes the rest of `places`."""
    end = places.shape[1]
    height, width = picture.canvas
    places[:, start:] = origin
    overview = picture.overview
    if start < overview.start:
        places[1:, start] = max(origin - 1, 0)
    if overview.stop < end:
        places[1:, overview.stop] = origin + height, origin + width
    rows, cols = _grid(overview)
    _fill(places, overview, origin + _spread(height, rows), origin + _spread(width, cols))
    if not picture.slices:
        return
    columns = picture.columns
    cell_height, cell_width = _grid(picture.slices[0])
    for index, run in enumerate(picture.slices):
        row, column = divmod(index, columns)
        top, left = origin + row * cell_height, origin + column * cell_width
        rows, cols = _grid(run)
        places[1:, run.start - 1] = top, left
        if run.stop < end:
            places[1:, run.stop] = top + rows - 1, left + cols - 1
        _fill(places, run, top + np.arange(rows), left + np.arange(cols))
        if index and run.start - picture.slices[index - 1].stop > _SIDE_BY_SIDE:
            # The end of a line stands beyond the row before.
            above = (index - 1) // columns + 1
            between = slice(picture.slices[index - 1].stop + 1, run.start - 1)
            places[1, between] = origin + above * cell_height - 1
            places[2, between] = origin + columns * cell_width


def _fill(
    places: NDArray[np.int32], run: MediaRun, down: NDArray[np.int64], across: NDArray[np.int64]
) -> None:
    places[1, run.start : run.stop] = np.repeat(down, len(across))
    places[2, run.start : run.stop] = np.tile(across, len(down))


def _grid(run: MediaRun) -> tuple[int, int]:
    assert run.grid is not None, "a picture has rows and columns"
    return run.grid


def _spread(length: int, count: int) -> NDArray[np.int64]:
    """`count` whole numbers, evenly from 0 to `length - 1`.

    Counted from both ends in float32, as the model was trained: that decides halves.
    """
    if count == 1:
        return np.zeros(1, dtype=np.int64)
    last = np.float32(length - 1)
    step = last / np.float32(count - 1)
    numbers = np.arange(count, dtype=np.float32)
    values = np.where(numbers < count // 2, step * numbers, last - step * numbers[::-1])
    return np.rint(values).astype(np.int64)
