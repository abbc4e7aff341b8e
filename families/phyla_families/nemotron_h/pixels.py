"""Pictures made larger or smaller, as the tower was trained on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from phyla.media import resized_floats

if TYPE_CHECKING:
    from numpy.typing import NDArray


def resized(
    picture: NDArray[np.uint8], size: tuple[int, int], resample: int = 3
) -> NDArray[np.uint8] | NDArray[np.float16]:
    """A picture of another size, whose values are neither rounded nor cut to 0..255.

    A bicubic filter overshoots at edges, and the tower has seen that. Half precision keeps an
    eighth of a level, which is finer than pixels are.

    Args:
        picture: `[H, W, 3]`.
        size: rows and columns wanted; a picture that has them is left as it is.
        resample: Pillow's number of the filter.
    """
    if picture.shape[:2] == size:
        return picture
    return resized_floats(picture, size, resample).astype(np.float16)


def viewable(picture: NDArray[np.uint8] | NDArray[np.float16]) -> NDArray[np.uint8]:
    """The same for people."""
    if picture.dtype == np.uint8:
        return picture.astype(np.uint8, copy=False)
    return np.clip(np.round(picture.astype(np.float32)), 0, 255).astype(np.uint8)
