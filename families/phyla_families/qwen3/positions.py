"""Where the tokens of a prompt with pictures stand, by time, row and column (M-RoPE)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from phyla.family import MediaRun


def multimodal_positions(length: int, runs: Sequence[MediaRun]) -> NDArray[np.int32]:
    """The positions `[3, length]`: time, row, column.

    Text counts up on all three. A picture (of a video, each pair of frames) stands at one time, its
    soft tokens spread out in rows and columns from there; what follows is as far on as the longer
    of its sides.
    """
    places = np.empty((3, length), np.int32)
    done, following = 0, 0
    for run in runs:
        places[:, done : run.start] = following + np.arange(run.start - done)
        following += run.start - done
        rows, columns = run.grid or (1, run.stop - run.start)
        cells = np.arange(rows * columns)
        places[0, run.start : run.stop] = following
        places[1, run.start : run.stop] = following + cells // columns
        places[2, run.start : run.stop] = following + cells % columns
        following += max(rows, columns)
        done = run.stop
    places[:, done:] = following + np.arange(length - done)
    return places
