"""Pixels on their way to the tower: scaled, cut into slices and patches, and back for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from phyla.family import Prepared
from phyla.media import resized

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from phyla_families.minicpm.preprocessing import PictureSettings
    from phyla_families.minicpm.sampling import Unit
    from phyla_families.minicpm.slicing import Slicing

    Picture = NDArray[np.uint8]  # [H, W, 3]

# Pixels of black between the frames of a canvas.
_GAP = 6


def views(picture: Picture, slicing: Slicing, resample: int) -> Iterable[Picture]:
    """The overview, then the slices row by row."""
    yield resized(picture, slicing.overview, resample)
    if slicing.grid is None:
        return
    sheet = resized(picture, slicing.sheet, resample)
    height, width = slicing.cell
    for row in range(slicing.grid[0]):
        for column in range(slicing.grid[1]):
            top, left = row * height, column * width
            yield sheet[top : top + height, left : left + width]


def prepared(
    pictures: Iterable[Picture], captions: Sequence[str], patch: int, settings: PictureSettings
) -> Prepared:
    """Cut pictures into patches.

    Args:
        pictures: sides are multiples of `patch`.
        captions: one for each, for people.
        patch: side of a patch in pixels.
        settings: say how bytes become what the tower reads.
    """
    cut: list[Picture] = []
    grids: list[tuple[int, int]] = []
    for picture in pictures:
        rows, cols = picture.shape[0] // patch, picture.shape[1] // patch
        parts = picture.reshape(rows, patch, cols, patch, 3).swapaxes(1, 2)
        cut.append(parts.reshape(-1, patch, patch, 3))
        grids.append((rows, cols))
    patches = np.concatenate(cut)

    def shown() -> list[tuple[str, Picture]]:
        whole: list[tuple[str, Picture]] = []
        start = 0
        for caption, (rows, cols) in zip(captions, grids, strict=True):
            parts = patches[start : start + rows * cols].reshape(rows, cols, patch, patch, 3)
            whole.append((caption, parts.swapaxes(1, 2).reshape(rows * patch, cols * patch, 3)))
            start += rows * cols
        return whole

    arrays = {"patches": patches, "grids": np.array(grids, dtype=np.int32)}
    return Prepared({**arrays, **settings.affine.arrays}, views=shown)


def captions(slicing: Slicing, name: str) -> list[str]:
    """What to call the views of a picture."""
    if slicing.grid is None:
        return [name]
    rows, columns = slicing.grid
    slices = [
        f"{name}, slice {row + 1},{column + 1} of {rows}x{columns}"
        for row in range(rows)
        for column in range(columns)
    ]
    return [f"{name}, overview", *slices]


def canvas_grid(count: int, size: tuple[int, int]) -> tuple[int, int]:
    """Rows and columns in which frames of `(height, width)` come nearest to a square."""
    if count == 4:
        return 2, 2
    if count not in (2, 3):
        return 1, count
    height, width = canvas_size((1, count), size)
    wide = abs(width / max(1, height) - 1)
    height, width = canvas_size((count, 1), size)
    tall = abs(width / max(1, height) - 1)
    if wide == tall:
        return (1, count) if count != 2 or size[1] >= size[0] else (2, 1)
    return (1, count) if wide < tall else (count, 1)


def canvas_size(grid: tuple[int, int], size: tuple[int, int]) -> tuple[int, int]:
    """Height and width of a canvas with rows and columns of frames of `(height, width)`."""
    down, across = (
        number * side + (number - 1) * _GAP for number, side in zip(grid, size, strict=True)
    )
    return down, across


def unit_size(unit: Unit, size: tuple[int, int]) -> tuple[int, int]:
    """Height and width of a frame, or of several on a canvas."""
    return canvas_size(canvas_grid(len(unit), size), size)


def canvas(frames: Sequence[Picture]) -> Picture:
    """Frames of one size side by side, black between them."""
    if len(frames) == 1:
        return frames[0]
    height, width, _ = frames[0].shape
    grid = canvas_grid(len(frames), (height, width))
    sheet = np.zeros((*canvas_size(grid, (height, width)), 3), dtype=np.uint8)
    for index, frame in enumerate(frames):
        row, column = divmod(index, grid[1])
        top, left = row * (height + _GAP), column * (width + _GAP)
        sheet[top : top + height, left : left + width] = frame
    return sheet
