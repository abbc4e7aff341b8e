"""Which views a picture is seen in, from its size alone.

A large picture is cut into square tiles, which a view of the whole may follow; any other is one
view. Sizes are those of Lfm2VlImageProcessor, which stretches pictures and never pads them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from phyla_families.lfm2_vl.image_settings import ImageSettings


@dataclass(frozen=True)
class Views:
    """The views of a picture.

    Attributes:
        rows: of tiles,
        columns: likewise; one and one where there are no tiles.
        whole: height and width in pixels of the view of the whole picture; None where only tiles
            are seen.
    """

    rows: int
    columns: int
    whole: tuple[int, int] | None

    @property
    def tiles(self) -> int:
        """How many tiles there are; none in a picture that is not cut."""
        count = self.rows * self.columns
        return count if count > 1 else 0

    def tokens(self, settings: ImageSettings) -> int:
        """How many soft tokens all views take."""
        tile = (settings.tile_size // settings.token_size) ** 2
        return self.tiles * tile + (_tokens(self.whole, settings) if self.whole else 0)


def lay_out(
    width: int, height: int, settings: ImageSettings, *, budget: int | None = None
) -> Views:
    """Choose the views of a picture.

    A picture that takes more than its budget is cut into fewer tiles, or into none, and then made
    smaller.

    Args:
        width: of the picture in pixels.
        height: likewise.
        settings: the checkpoint's.
        budget: the most soft tokens that it may take; None for as many as the model wants.

    Raises:
        ValueError: it is too long and narrow for the model, or for its budget.
    """
    size = whole_size(width, height, settings)
    large = settings.splits and is_large(width, height, settings)
    views = _tiled(width, height, settings, size, settings.max_tiles) if large else None
    views = views or Views(1, 1, size)
    longest = settings.longest_view
    if views.whole and _tokens(views.whole, settings) > longest:
        raise ValueError(
            f"its sides of {width} and {height} pixels differ too much: a view of it would take "
            f"{_tokens(size, settings)} tokens, and this model's views have at most {longest}; crop "
            f"it"
        )
    if budget is None or views.tokens(settings) <= budget:
        return views
    for most in range(views.tiles - 1, settings.min_tiles - 1, -1):
        fewer = _tiled(width, height, settings, size, most)
        if fewer is not None and fewer.tokens(settings) <= budget:
            return fewer
    least, fewest = settings.min_image_tokens, views.tokens(settings)
    for most in range(min(budget, settings.max_image_tokens), 0, -1):
        size = whole_size(width, height, settings, least=min(least, most), most=most)
        fewest = min(fewest, _tokens(size, settings))
        if fewest <= budget:
            return Views(1, 1, size)
    raise ValueError(
        f"it takes at least {fewest} tokens, and may take {budget}; raise 'max_tokens'"
    )


def whole_size(
    width: int,
    height: int,
    settings: ImageSettings,
    *,
    least: int | None = None,
    most: int | None = None,
) -> tuple[int, int]:
    """Height and width in pixels of a view of the whole picture, in whole soft tokens.

    Sides are rounded, halves to even. A picture with more than `most` soft tokens is made smaller
    and rounded down, one with fewer than `least` larger and rounded up; the settings' limits when
    these are None.
    """
    step = settings.token_size
    rows, columns = max(1, round(height / step)), max(1, round(width / step))
    largest = (settings.max_image_tokens if most is None else most) * step**2
    smallest = (settings.min_image_tokens if least is None else least) * step**2
    area = rows * columns * step**2
    if area > largest:
        shrink = math.sqrt(height * width / largest)
        rows = max(1, math.floor(height / shrink / step))
        columns = max(1, math.floor(width / shrink / step))
    elif area < smallest:
        grow = math.sqrt(smallest / (height * width))
        rows, columns = math.ceil(height * grow / step), math.ceil(width * grow / step)
    return rows * step, columns * step


def is_large(width: int, height: int, settings: ImageSettings) -> bool:
    """Whether a picture is too large for one view."""
    step = settings.token_size
    # A side that rounds to nothing counts as a patch, half of what it counts as in a view.
    rounded = [
        max(settings.encoder_patch_size, round(side / step) * step) for side in (height, width)
    ]
    limit = settings.max_image_tokens * step**2 * settings.max_pixels_tolerance
    return rounded[0] * rounded[1] > limit


def tile_grid(width: int, height: int, settings: ImageSettings, most: int) -> tuple[int, int]:
    """Rows and columns of at most `most` tiles, of the shape that is nearest to the picture's.

    Of grids of one shape, such as 1 x 2 and 2 x 4, a larger one is taken for a picture with more
    than half of its pixels.
    """
    grids = sorted(
        (rows * columns, columns, rows)
        for columns in range(1, most + 1)
        for rows in range(1, most // columns + 1)
        if rows * columns >= settings.min_tiles
    )
    best, nearest = (1, 1), math.inf
    for tiles, columns, rows in grids:
        distance = abs(width / height - columns / rows)
        fills = width * height > 0.5 * settings.tile_size**2 * tiles
        if distance < nearest or (distance == nearest and fills):
            best, nearest = (rows, columns), distance
    return best


def _tiled(
    width: int, height: int, settings: ImageSettings, size: tuple[int, int], most: int
) -> Views | None:
    """Views with at most so many tiles; None where one tile fits best."""
    rows, columns = tile_grid(width, height, settings, most)
    if rows * columns == 1:
        return None
    return Views(rows, columns, size if settings.use_thumbnail else None)


def _tokens(size: tuple[int, int], settings: ImageSettings) -> int:
    return (size[0] // settings.token_size) * (size[1] // settings.token_size)
