"""Still images: opened by their header, decoded when their pixels are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from phyla.media.arrays import as_array
from phyla.media.item import Item
from phyla.media.pillow import decoding, open_bytes, orientation, turned
from phyla.media.pixels import from_array, from_pillow
from phyla.media.sources import find

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from PIL.Image import Image

    from phyla.media.limits import MediaLimits


class ImageFile:
    """An image whose header was read, and nothing decoded. Make one with `open_image`.

    Attributes:
        size: (width, height) in pixels, the right way up.
    """

    def __init__(self, size: tuple[int, int], decode: Callable[[], NDArray[np.uint8]]) -> None:
        self.size = size
        self._decode = decode

    def pixels(self) -> NDArray[np.uint8]:
        """Decode it: [H, W, 3] RGB, the right way up, transparency on white. Never kept.

        Raises:
            MediaError: the file is broken or truncated.
        """
        return self._decode()

    def __repr__(self) -> str:
        return f"ImageFile(size={self.size})"


def open_image(source: object, *, index: int, limits: MediaLimits) -> ImageFile:
    """See `phyla.media.open_image`."""
    return read_image(source, Item("image", index, limits))


def read_image(source: object, item: Item) -> ImageFile:
    """Open an image that is an item of a request, or a part of one (a video's frame)."""
    array = as_array(source)
    if array is not None:
        return _from_array(array, item)
    if type(source).__module__.startswith("PIL.") or _is_pillow(source):
        return _from_pillow(source, item)  # type: ignore[arg-type]
    return _from_file(find(source, item).read(item), item)


def _is_pillow(source: object) -> bool:
    # Subclasses outside of Pillow; without importing it for what is no image.
    return any(
        kind.__module__ == "PIL.Image" and kind.__name__ == "Image" for kind in type(source).__mro__
    )


def _from_array(array: NDArray[Any], item: Item) -> ImageFile:
    picture = from_array(array, item)
    height, width = picture.shape[:2]
    return ImageFile((width, height), lambda: np.array(picture))


def _from_pillow(image: Image, item: Item) -> ImageFile:
    item.check_pixels(*image.size)
    with decoding(item):
        image.load()  # a file behind it may be closed later
        mine = image.copy()
        # A copy has no `format`, by which an `I` image of a file is told from one made in memory.
        mine.format = image.format
        turn = orientation(image)

    def decode() -> NDArray[np.uint8]:
        with decoding(item):
            return from_pillow(turned(mine, turn))

    return ImageFile(_after(turn, mine.size), decode)


def _from_file(data: bytes, item: Item) -> ImageFile:
    header = open_bytes(data, item)
    turn = orientation(header, data)

    def decode() -> NDArray[np.uint8]:
        image = open_bytes(data, item)
        with decoding(item, data):
            image.load()
            upright = turned(image, turn)
            upright.format = image.format
            return from_pillow(upright)

    return ImageFile(_after(turn, header.size), decode)


def _after(turn: int, size: tuple[int, int]) -> tuple[int, int]:
    return (size[1], size[0]) if turn >= 5 else size
