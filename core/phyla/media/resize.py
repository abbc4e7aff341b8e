"""Makes pictures larger or smaller, by Pillow's filters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL.Image import Image


def resized(
    pixels: NDArray[np.uint8], size: tuple[int, int], resample: int = 3
) -> NDArray[np.uint8]:
    """A picture `[H, W, 3]` at another size; one that has it already is given back as it is.

    Along rows first, as torchvision and Pillow before 13 do; Pillow 13 takes the columns first where
    that is less work, and text looks other then, since bytes are rounded in between.

    Args:
        pixels: the picture.
        size: height and width wanted.
        resample: Pillow's number of the filter; 2 is bilinear, 3 bicubic.
    """
    from PIL import Image

    if pixels.shape[:2] == size:
        return pixels
    return np.asarray(_scaled(Image.fromarray(pixels), size, resample))


def resized_floats(
    pixels: NDArray[np.uint8], size: tuple[int, int], resample: int = 3
) -> NDArray[np.float32]:
    """The same, with values that are neither rounded nor cut to 0..255.

    A bicubic filter overshoots at edges, which models have seen whose pictures were resized as floats.
    """
    from PIL import Image

    planes = np.empty((*size, 3), np.float32)
    for color in range(3):
        plane = Image.fromarray(np.ascontiguousarray(pixels[..., color], np.float32))
        planes[..., color] = np.asarray(_scaled(plane, size, resample))
    return planes


def _scaled(image: Image, size: tuple[int, int], resample: int) -> Image:
    from PIL.Image import Resampling

    height, width = size
    across = image.resize((width, image.height), Resampling(resample))
    return across.resize((width, height), Resampling(resample))
