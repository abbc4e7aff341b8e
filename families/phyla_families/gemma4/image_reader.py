"""How Gemma 4 looks at an image: as large as its budget of soft tokens allows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from phyla.family import MediaReader, Plan, Prepared, Soft
from phyla.media import resized
from phyla_families.gemma4 import tokens
from phyla_families.gemma4.sizes import budget_for, soft_grid

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from phyla.family import MediaRequest
    from phyla.media import ImageFile


@dataclass(frozen=True, kw_only=True)
class Look:
    """How pictures are made ready.

    Attributes:
        side: of the square that one soft token shows, in pixels.
        longest: how many soft tokens may stand side by side.
        budget: the usual number of soft tokens for a picture, at most.
        resample: Pillow's number of the filter that resizes it.
    """

    side: int
    longest: int
    budget: int
    resample: int

    def grid(self, size: tuple[int, int], budget: int) -> tuple[int, int]:
        """Rows and columns of soft tokens for a picture of a width and a height.

        Raises:
            ValueError: it has no pixels, or is too long for its width.
        """
        width, height = size
        if width < 1 or height < 1:
            raise ValueError(f"it has no pixels: {width} x {height}")
        grid = soft_grid(width, height, budget=budget, side=self.side)
        if max(grid) > self.longest:
            raise ValueError(
                f"its sides differ too much: at {width} x {height} it would be {max(grid)} pieces "
                f"long, and this model places {self.longest}; crop it"
            )
        return grid

    def pixels(self, grid: tuple[int, int]) -> tuple[int, int]:
        """Height and width of a picture with a grid."""
        return grid[0] * self.side, grid[1] * self.side

    def resized(self, pixels: NDArray[np.uint8], grid: tuple[int, int]) -> NDArray[np.uint8]:
        """A picture `[H, W, 3]` at the size of its grid."""
        return resized(pixels, self.pixels(grid), self.resample)


class ImageReader(MediaReader["ImageFile"]):
    """Reads images.

    Args:
        look: how they are made ready.
    """

    token = tokens.IMAGE

    def __init__(self, look: Look) -> None:
        self._look = look

    def plan(self, item: ImageFile, request: MediaRequest) -> Plan:
        """One run of soft tokens between the marks of an image."""
        budget = budget_for(request.max_tokens, self._look.budget)
        rows, columns = self._look.grid(item.size, budget)
        if request.max_tokens is not None and rows * columns > request.max_tokens:
            raise ValueError(
                f"it takes at least {rows * columns} tokens, and {request.max_tokens} are allowed; "
                f"raise 'max_tokens'"
            )
        soft = Soft(tokens.IMAGE, rows * columns, (rows, columns))
        return Plan(pieces=(tokens.IMAGE_BEGIN, soft, tokens.IMAGE_END), layout=(rows, columns))

    def prepare(self, item: ImageFile, plan: Plan) -> Prepared:
        """`pixels`: the resized image, uint8 `[1, H, W, 3]`."""
        pixels = self._look.resized(item.pixels(), cast("tuple[int, int]", plan.layout))
        height, width, _ = pixels.shape
        caption = f"{width} x {height} pixels, {plan.count} tokens"
        return Prepared({"pixels": pixels[None]}, lambda: [(caption, pixels)])
