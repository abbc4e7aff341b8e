"""The learned positions of C-RADIO, stretched over a picture (CPE: cropped position embedding).

RADIOv2.5 (Heinrich et al. 2024, arXiv:2412.07679). The square table is resized, bilinearly, to a
square on the picture's longer side, and of that the picture takes the upper left part.
"""

from __future__ import annotations

import mlx.core as mx
import numpy as np


def stretched(table: mx.array, rows: int, columns: int) -> mx.array:
    """Positions of a picture's patches.

    Args:
        table: `[side, side, D]`.
        rows: of patches,
        columns: and of them in a row.

    Returns:
        float32 `[rows * columns, D]`, row by row.
    """
    side, longest = table.shape[0], max(rows, columns)
    table = table.astype(mx.float32)
    across = _mix(table, *_neighbours(columns, side, longest), axis=1)
    down = _mix(across, *_neighbours(rows, side, longest), axis=0)
    return down.reshape(rows * columns, -1)


def _neighbours(count: int, side: int, longest: int) -> tuple[mx.array, mx.array, mx.array]:
    """For the first `count` of `longest` places: the entries around it, and the second's share."""
    # In float32, as the reference rounds.
    scale = np.float32(side) / np.float32(longest)
    at = (np.arange(count, dtype=np.float32) + np.float32(0.5)) * scale - np.float32(0.5)
    at = np.maximum(at, 0)
    first = np.minimum(at.astype(np.int32), side - 1)
    second = np.minimum(first + 1, side - 1)
    return mx.array(first), mx.array(second), mx.array(at - first)


def _mix(
    table: mx.array, first: mx.array, second: mx.array, share: mx.array, *, axis: int
) -> mx.array:
    share = share[:, None] if axis else share[:, None, None]
    one, other = (mx.take(table, places, axis=axis) for places in (first, second))
    return one * (1 - share) + other * share
