"""How MiniCPM-V cuts a picture: one overview, and for a large one a grid of slices.

From "LLaVA-UHD" (Xu et al. 2024, arXiv:2403.11703) by way of MiniCPM-V (Yao et al. 2024,
arXiv:2408.01800). Sizes are `(height, width)` throughout. Looks at no pixel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Slicing:
    """The sizes that a picture is scaled to, in pixels.

    Attributes:
        overview: of the whole picture.
        grid: rows and columns of slices; None for none.
        cell: of one slice.
    """

    overview: tuple[int, int]
    grid: tuple[int, int] | None = None
    cell: tuple[int, int] = (0, 0)

    @property
    def views(self) -> list[tuple[int, int]]:
        """Of the overview, then of each slice, row by row."""
        rows, columns = self.grid or (0, 0)
        return [self.overview, *[self.cell] * (rows * columns)]

    @property
    def sheet(self) -> tuple[int, int]:
        """What the picture is scaled to before it is cut into slices."""
        rows, columns = self.grid or (0, 0)
        return rows * self.cell[0], columns * self.cell[1]

    def tokens(self, unit: int) -> int:
        """Soft tokens in all, each a square of `unit` pixels a side."""
        return sum((height // unit) * (width // unit) for height, width in self.views)


def slicing(size: tuple[int, int], *, resolution: int, unit: int, max_slices: int) -> Slicing:
    """How a picture is cut.

    Args:
        size: its height and width.
        resolution: side of the square whose area an overview or a slice has, about.
        unit: what sides are multiples of.
        max_slices: the most slices; 1 for none.
    """
    grid = _grid(size, resolution, max_slices)
    if grid is None:
        return Slicing(_fitted(size, resolution, unit, enlarge=True))
    rows, columns = grid
    cell = (_multiple(size[0], rows) / rows, _multiple(size[1], columns) / columns)
    return Slicing(
        overview=_fitted(size, resolution, unit, enlarge=False),
        grid=grid,
        cell=_fitted(cell, resolution, unit, enlarge=True),
    )


def _fitted(
    size: tuple[float, float], resolution: int, unit: int, *, enlarge: bool
) -> tuple[int, int]:
    """The nearest size in units with about `resolution` squared pixels, or with fewer if it has."""
    height, width = size
    if height * width > resolution * resolution or enlarge:
        aspect = width / height
        # Cut to whole numbers one after the other, as in training.
        height = int(resolution / math.sqrt(aspect))
        width = int(height * aspect)
    return _multiple(height, unit), _multiple(width, unit)


def _multiple(length: float, of: int) -> int:
    """The nearest multiple, to even ones from half-way, and never none."""
    return max(round(length / of) * of, of)


def _grid(size: tuple[int, int], resolution: int, max_slices: int) -> tuple[int, int] | None:
    """Rows and columns whose slices come nearest to squares."""
    height, width = size
    count = min(math.ceil(width * height / (resolution * resolution)), max_slices)
    if count <= 1:
        return None
    shape = math.log(width / height)
    grids = [
        (rows, number // rows)
        for number in (count - 1, count, count + 1)
        if 1 < number <= max_slices
        for rows in range(1, number + 1)
        if number % rows == 0
    ]
    # Of grids that are equally near, the one with the most rows.
    return min(grids, key=lambda grid: (abs(shape - math.log(grid[1] / grid[0])), -grid[0]))
