"""What size a picture gets: whole blocks, about its own shape, within a budget of pixels.

Qwen2-VL's rule (Wang et al. 2024, arXiv:2409.12191), with blocks of 32 x 32 pixels.
"""

from __future__ import annotations

import math

_LARGEST_RATIO = 200


def fitted_blocks(
    width: int,
    height: int,
    *,
    block: int,
    least: int,
    most: int,
    frames: int = 1,
    counted: int = 1,
) -> tuple[int, int]:
    """Rows and columns of blocks that a picture becomes.

    Each side is rounded to whole blocks; if all frames together then have too many or too few
    pixels, both sides are scaled by one factor and rounded down or up.

    Args:
        width: in pixels.
        height: likewise.
        block: pixels along a block's side.
        least: pixels that it has at least,
        most: and at most, but for a side that is one block.
        frames: of a video, how many there are,
        counted: and how many once their number is rounded to whole patches.

    Raises:
        ValueError: the picture is too long for its width.
    """
    if max(width, height) > _LARGEST_RATIO * min(width, height):
        raise ValueError(
            f"its sides, {width} and {height} pixels, differ by more than {_LARGEST_RATIO} times; "
            f"crop it"
        )
    rows, columns = round(height / block), round(width / block)
    pixels = counted * rows * columns * block**2
    if pixels > most:
        shrink = math.sqrt(frames * height * width / most)
        return (
            max(1, math.floor(height / shrink / block)),
            max(1, math.floor(width / shrink / block)),
        )
    if pixels < least:
        grow = math.sqrt(least / (frames * height * width))
        return math.ceil(height * grow / block), math.ceil(width * grow / block)
    return rows, columns


def capped_blocks(width: int, height: int, *, block: int, most: int) -> tuple[int, int]:
    """Rows and columns of a picture that is to be at most `most` blocks, however small that is.

    Raises:
        ValueError: a picture of this shape takes more.
    """
    rows, columns = max(1, round(height / block)), max(1, round(width / block))
    if rows * columns > most:
        side = math.sqrt(height * width / most)  # of a block, in the picture as it is
        rows = max(1, math.floor(height / side))
        columns = max(1, math.floor(width / side))
    if rows * columns > most:
        raise ValueError(
            f"with sides of {width} and {height} pixels it takes at least {rows * columns} soft "
            f"tokens, more than the {most} allowed; raise 'max_tokens'"
        )
    return rows, columns
