"""Turns pictures of every kind into 8-bit RGB: modes of Pillow, and arrays.

What is transparent is laid on white. 16-bit values are scaled so that 65535 becomes 255.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL.Image import Image

    from phyla.media.item import Item

_SIXTEEN_BITS = ("I;16", "I;16L", "I;16B", "I;16N")
_WITH_ALPHA = ("RGBA", "LA", "PA", "RGBa", "La")
# How far beyond 0..1 floats may lie, by rounding.
_SLACK = 1e-3


def from_pillow(image: Image) -> NDArray[np.uint8]:
    """A decoded image of any mode as [H, W, 3].

    Of the modes without a known white, `I` counts as 16-bit unless a larger value is found, or the
    image was made in memory and holds no value above 255; `F` has the smallest of 1, 255 and 65535
    as its white that no value exceeds. What exceeds 65535 is scaled by the image's own maximum.
    """
    transparent = image.info.get("transparency")
    if image.mode in _SIXTEEN_BITS:
        return _grey(_by_white(np.asarray(image), 65535), np.asarray(image), transparent)
    if image.mode == "I":
        values = np.asarray(image)
        top = int(values.max())
        small = top <= 255 and image.format is None
        white = 255 if small else max(top, 65535)
        return _grey(_by_white(values, white), values, transparent)
    if image.mode == "F":
        values = np.nan_to_num(np.asarray(image), nan=0.0, posinf=0.0, neginf=0.0)
        top = float(values.max())
        white = next((white for white in (1, 255, 65535) if top <= white), top)
        return _grey(_by_white(values, white), values, None)
    if image.mode in _WITH_ALPHA or transparent is not None:
        return _on_white(image)
    return np.array(image if image.mode == "RGB" else image.convert("RGB"))


def _on_white(image: Image) -> NDArray[np.uint8]:
    from PIL import Image as pil

    transparent = image.info.get("transparency")
    if isinstance(transparent, tuple) and max(transparent) > 255:
        # A 16-bit colour, while the pixels were brought to 8 bits.
        image = image.copy()
        image.info["transparency"] = tuple(value >> 8 for value in transparent)
    if image.mode == "La":
        image = image.convert("LA")
    layer = image.convert("RGBA")
    canvas = pil.new("RGB", layer.size, "white")
    canvas.paste(layer, mask=layer.getchannel("A"))
    return np.array(canvas)


def _by_white(values: NDArray[Any], white: float) -> NDArray[np.uint8]:
    scaled = np.clip(values.astype(np.float64), 0, white) * (255 / white)
    return np.round(scaled).astype(np.uint8)


def _grey(grey: NDArray[np.uint8], values: NDArray[Any], transparent: object) -> NDArray[np.uint8]:
    if isinstance(transparent, int):
        grey = np.where(values == transparent, np.uint8(255), grey)
    return np.repeat(grey[..., None], 3, axis=-1)


def from_array(array: NDArray[Any], item: Item) -> NDArray[np.uint8]:
    """A picture [H, W], [H, W, 1|2|3|4] or [1|2|3|4, H, W] as [H, W, 3].

    The last axis is that of the channels if it can be. Two channels are grey and alpha.

    Raises:
        MediaError: shape, type or values are not those of a picture.
    """
    if array.ndim == 3 and array.shape[-1] not in (1, 2, 3, 4) and array.shape[0] in (1, 2, 3, 4):
        array = np.moveaxis(array, 0, -1)
    if array.ndim == 2:
        array = array[..., None]
    if array.ndim != 3 or array.shape[-1] not in (1, 2, 3, 4):
        raise item.error(
            f"an array of shape {array.shape} is no picture.",
            "Pass [height, width] or [height, width, channels], of 1 to 4 channels.",
        )
    item.check_pixels(array.shape[1], array.shape[0])
    return blended(_eight_bits(array, item))


def blended(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A picture of 1 to 4 channels as [H, W, 3], what is transparent laid on white."""
    channels = picture.shape[-1]
    if channels in (2, 4):
        alpha = picture[..., -1:].astype(np.uint32)
        color = picture[..., :-1] * alpha + 255 * (255 - alpha)
        picture = ((color + 127) // 255).astype(np.uint8)
    if channels < 3:
        picture = np.repeat(picture, 3, axis=-1)
    return np.array(picture)


def _eight_bits(array: NDArray[Any], item: Item) -> NDArray[np.uint8]:
    if array.dtype == np.uint8:
        return array
    if array.dtype == np.bool_:
        return array.astype(np.uint8) * np.uint8(255)
    if array.dtype == np.uint16:
        return _by_white(array, 65535)
    if array.dtype.kind != "f":
        raise item.error(
            f"an array of {array.dtype} is no picture.",
            "Pass uint8, uint16, bool, or floats from 0 to 1.",
        )
    low, high = float(array.min()), float(array.max())
    if not (low >= -_SLACK and high <= 1 + _SLACK):  # NaN fails, too
        raise item.error(
            f"an array of floats should hold values from 0 to 1; found {low:g} to {high:g}.",
            "Scale them, or pass uint8.",
        )
    return _by_white(array, 1)
