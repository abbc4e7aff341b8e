"""How large a picture is made, in patches of the tower; both sides are multiples of two."""

from __future__ import annotations

import math

from phyla_families.nemotron_h.omni_config import MERGE


def picture_grid(
    width: int, height: int, *, patch: int, least: int, most: int, squeeze: bool = False
) -> tuple[int, int]:
    """Rows and columns of patches for a picture: those of its own size, within a budget.

    Args:
        width: of the picture as it is, in pixels.
        height: likewise.
        patch: pixels along the side of a patch.
        least: patches that a smaller picture is made larger for, if `most` allows more.
        most: patches that a larger picture is made smaller for. One that is much longer than wide
            may get more all the same.
        squeeze: whether one so thin that nothing would be left of it gets a row or column.

    Raises:
        ValueError: nothing would be left of it.
    """
    # Half a patch more, and what lies in the middle goes to the even number, as upstream.
    rows, columns = round(height / patch + 0.5), round(width / patch + 0.5)
    shrink = min(math.sqrt(most / (rows * columns)), 1.0)
    rows, columns = math.floor(shrink * rows), math.floor(shrink * columns)
    if squeeze:
        rows, columns = max(rows, 1), max(columns, 1)
    elif not rows * columns:
        raise ValueError(
            f"of its {width} x {height} pixels nothing would be left on the shorter side; crop it"
        )
    if most > least and rows * columns < least:
        grow = math.sqrt(least / (rows * columns))
        rows, columns = math.ceil(grow * rows), math.ceil(grow * columns)
    rows = _even(rows, columns, most)
    return rows, _even(columns, rows, most)


def frame_grid(width: int, height: int, *, target: int, square: bool = False) -> tuple[int, int]:
    """Rows and columns of patches for the frames of a video: about `target` of them.

    Args:
        width: of a frame as it is, in pixels.
        height: likewise.
        target: patches of a frame, whatever its size.
        square: whether frames are made square.
    """
    if square:
        side = max(MERGE, math.isqrt(target) // MERGE * MERGE)
        return side, side
    ratio = width / height
    rows = max(round(math.sqrt(target / ratio)), 1)
    columns = max(round(math.sqrt(target * ratio)), 1)
    up = _up(rows), _up(columns)
    if up[0] * up[1] <= target:
        return up
    return max(MERGE, rows - rows % MERGE), max(MERGE, columns - columns % MERGE)


def shortened(rows: int, columns: int, most: int) -> tuple[int, int]:
    """A grid of at most `most` patches, four or more: the longer side is cut, which squeezes it.

    Only of use for what is much longer than wide.
    """
    if rows * columns <= most:
        return rows, columns
    short = min(rows, columns)
    if short * short > most:
        short = max(MERGE, math.isqrt(most) // MERGE * MERGE)
    long = most // short // MERGE * MERGE
    return (short, long) if rows < columns else (long, short)


def _even(side: int, other: int, most: int) -> int:
    """The side made even: longer if the budget allows it."""
    if _up(side) * other <= most:
        return _up(side)
    return max(MERGE, side - side % MERGE)


def _up(side: int) -> int:
    return side + side % MERGE
