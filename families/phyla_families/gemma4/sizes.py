"""How large an image is made, and so how many soft tokens it takes."""

from __future__ import annotations

import math

# How many soft tokens an image may take; the models were trained with these and no others.
BUDGETS = (70, 140, 280, 560, 1120)


def soft_grid(width: int, height: int, *, budget: int, side: int) -> tuple[int, int]:
    """Rows and columns of soft tokens for an image, which is made so large that they fill it.

    The image is scaled, up too, until it has `budget` squares of `side` by `side` pixels, and
    each side is then cut down to a whole number of squares. One too thin for that gets a single row
    or column, as long as its sides' ratio, rounded down.

    Args:
        width: of the image as it is, in pixels.
        height: likewise.
        budget: the most soft tokens.
        side: of a soft token's square, in pixels.
    """
    factor = math.sqrt(budget * side**2 / (width * height))
    rows = math.floor(factor * height / side)
    columns = math.floor(factor * width / side)
    if rows == 0:
        return 1, min(width // height, budget)
    if columns == 0:
        return min(height // width, budget), 1
    return rows, columns


def budget_for(max_tokens: int | None, usual: int) -> int:
    """The largest budget that is no more than `max_tokens`; the usual one when that is None.

    Where there is none it is the smallest, of which an image may leave some unused.
    """
    if max_tokens is None:
        return usual
    return max((budget for budget in BUDGETS if budget <= max_tokens), default=BUDGETS[0])
