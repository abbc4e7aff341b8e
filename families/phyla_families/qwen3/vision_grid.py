"""Where the patches of a picture stand: their order, their angles, their places in the table.

Patches come block by block: the `merge` x `merge` patches that become one soft token follow one
another, row by row, and so do the blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np

from phyla.nn import Rotation

if TYPE_CHECKING:
    from numpy.typing import NDArray


def patch_coordinates(
    rows: int, columns: int, merge: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The row and the column of each patch `[rows * columns]`, in order."""
    places = np.arange(rows * columns, dtype=np.int32).reshape(
        rows // merge, merge, columns // merge, merge
    )
    order = places.transpose(0, 2, 1, 3).reshape(-1)
    return order // columns, order % columns


def table_places(
    rows: int, columns: int, merge: int, side: int
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """From where in a table of `side` x `side` positions each patch takes its own.

    The picture's corners lie on the table's, and between its entries it is bilinear.

    Returns:
        Four entries for each patch, `[rows * columns, 4]`, and their weights.
    """
    row, column = patch_coordinates(rows, columns, merge)
    above, below = _neighbours(row, rows, side)
    left, right = _neighbours(column, columns, side)
    taps = [(vertical, across) for vertical in (above, below) for across in (left, right)]
    entries = [vertical[0] * side + across[0] for vertical, across in taps]
    weights = [vertical[1] * across[1] for vertical, across in taps]
    return np.stack(entries, axis=1), np.stack(weights, axis=1)


_Tap = tuple["NDArray[np.int32]", "NDArray[np.float32]"]


def _neighbours(index: NDArray[np.int32], count: int, side: int) -> tuple[_Tap, _Tap]:
    """The two entries next to each of `count` places along an axis, and their weights."""
    place = index.astype(np.float32) * np.float32(side - 1) / np.float32(max(count - 1, 1))
    first = np.floor(place)
    share = place - first
    last = np.minimum(first + 1, side - 1)
    return (first.astype(np.int32), 1 - share), (last.astype(np.int32), share)


@dataclass(frozen=True)
class AxialRotation:
    """Turns queries and keys by a patch's row and column, in float32.

    Half of a head's pairs of dimensions go by the row, the other half by the column, at the same
    frequencies; a pair lies half a head apart.
    """

    rotation: Rotation

    @classmethod
    def of_grid(
        cls, rows: int, columns: int, merge: int, *, head_dim: int, theta: float, times: int
    ) -> AxialRotation:
        """The rotation of `times` pictures of one grid, one behind the other."""
        pairs = head_dim // 4
        frequencies = theta ** (-np.arange(pairs, dtype=np.float32) / np.float32(pairs))
        row, column = patch_coordinates(rows, columns, merge)
        angles = np.concatenate(
            [axis[:, None].astype(np.float32) * frequencies for axis in (row, column)], axis=1
        )
        cos, sin = np.cos(angles), np.sin(angles)
        cos = np.tile(np.concatenate([cos, cos], axis=1), (times, 1))
        sin = np.tile(np.concatenate([-sin, sin], axis=1), (times, 1))
        return cls(Rotation(mx.array(cos)[:, None], mx.array(sin)[:, None]))

    def __call__(self, x: mx.array) -> mx.array:
        """Turn `[N, heads, head_dim]`."""
        return self.rotation(x.astype(mx.float32)).astype(x.dtype)
