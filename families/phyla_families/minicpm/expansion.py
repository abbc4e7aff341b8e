"""How a picture stands in a prompt: `<image>` around its overview, `<slice>` around each slice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phyla.family import Soft

if TYPE_CHECKING:
    from collections.abc import Iterator

    from phyla_families.minicpm.slicing import Slicing


def picture_pieces(slicing: Slicing, token: str, unit: int) -> Iterator[str | Soft]:
    """The marks and the soft tokens; rows of slices stand on lines of their own.

    Args:
        slicing: how the picture is cut.
        token: the soft token.
        unit: pixels to a soft token, a side.
    """
    yield "<image>"
    yield _soft(slicing.overview, token, unit)
    yield "</image>"
    if slicing.grid is None:
        return
    for row in range(slicing.grid[0]):
        if row:
            yield "\n"
        for _ in range(slicing.grid[1]):
            yield "<slice>"
            yield _soft(slicing.cell, token, unit)
            yield "</slice>"


def numbered(number: int) -> str:
    """What stands before the first mark of an item, counted from 0."""
    return f"<image_id>{number}</image_id>"


def joined(pieces: Iterator[str | Soft]) -> tuple[str | Soft, ...]:
    """The same, with texts that follow one another as one."""
    parts: list[str | Soft] = []
    for piece in pieces:
        last = parts[-1] if parts else None
        if isinstance(piece, str) and isinstance(last, str):
            parts[-1] = last + piece
        else:
            parts.append(piece)
    return tuple(parts)


def _soft(size: tuple[int, int], token: str, unit: int) -> Soft:
    rows, cols = size[0] // unit, size[1] // unit
    return Soft(token, rows * cols, (rows, cols))
