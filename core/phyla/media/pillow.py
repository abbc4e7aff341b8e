"""Opens image files with Pillow: the formats that are tried, the way up, and no warnings.

Pillow warns about much that is harmless (odd EXIF tags, its own limit of pixels, which is not ours);
a program that turns warnings into errors could then not read good pictures.
"""

from __future__ import annotations

import contextlib
import io
import re
import threading
import warnings
from typing import TYPE_CHECKING

from phyla.errors import MediaError
from phyla.media.sniff import looks_like, truncated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from PIL.Image import Image

    from phyla.media.item import Item

# Not EPS and WMF, which start other programs, nor what is no picture to look at (fonts, FITS).
# HEIF is read when the caller has registered a plugin for it.
_FORMATS = (
    "JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP", "MPO", "AVIF", "JPEG2000", "PPM", "ICO", "DIB",
    "QOI", "TGA", "PCX", "SGI", "HEIF", "JXL",
)  # fmt: skip
_ORIENTATION = 0x0112
_HINTS = {
    "SVG": "Render it to a PNG file first.",
    "PDF": "Render its pages to PNG files first.",
    "HEIC": "Convert it to JPEG or PNG first, or register pillow-heif's plugin.",
    "Git LFS": "Fetch the file itself with git lfs pull.",
    "HTML": "Check the URL or the download.",
}


class _Silence:
    """Keeps Pillow's warnings quiet while any thread is inside.

    The list of warning filters belongs to the process. Threads that came one after the other and
    left in another order would restore the wrong one, so the first to come saves it and the last
    to leave restores it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._saved = contextlib.ExitStack()

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            if self._inside == 0:
                self._saved.enter_context(warnings.catch_warnings())
                warnings.filterwarnings("ignore", module=r"PIL(\.|$)")
            self._inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if self._inside == 0:
                    self._saved.close()


silence = _Silence()


@contextlib.contextmanager
def decoding(item: Item, data: bytes | None = None) -> Iterator[None]:
    """Turn whatever Pillow raises inside into a MediaError, and keep it from warning."""
    try:
        with silence():
            yield
    except MediaError:
        raise
    except Exception as error:  # broken files make its plugins raise anything
        short = data is not None and truncated(data)
        if short or any(word in str(error).lower() for word in ("truncated", "not enough")):
            raise item.error(
                f"the image is truncated: its end is missing ({error}).", "Download it again."
            ) from error
        reason = str(error) or type(error).__name__
        raise item.error(
            f"the image is broken: {reason}.", "Check that it opens elsewhere."
        ) from error


def open_bytes(data: bytes, item: Item) -> Image:
    """Read an image file's header.

    Raises:
        MediaError: it is no image that can be read, or it has too many pixels.
    """
    pil = item.library("PIL.Image")
    pil.init()
    known = [name for name in _FORMATS if name in pil.OPEN]
    try:
        with silence():
            image = pil.open(io.BytesIO(data), formats=known)
    except pil.DecompressionBombError as error:
        raise item.error(
            f"Pillow refuses it: {error}",
            "Scale it down, or raise MediaLimits.max_pixels and PIL.Image.MAX_IMAGE_PIXELS.",
        ) from error
    except pil.UnidentifiedImageError as error:
        raise _no_image(data, item) from error
    except Exception as error:  # broken files make its plugins raise anything
        raise _no_image(data, item, str(error)) from error
    item.check_pixels(*image.size)
    if image.format == "ICO":
        for width, height in _icon_sizes(data):
            item.check_pixels(width, height)
    return image


def _no_image(data: bytes, item: Item, reason: str = "") -> MediaError:
    seen = looks_like(data)
    because = f" ({reason})" if reason else ""
    if seen.endswith("image") and "HEIC" not in seen:
        state = "truncated" if truncated(data) else "broken"
        return item.error(
            f"it begins like {seen}, but cannot be read{because}.", f"It seems to be {state}."
        )
    hint = next((hint for word, hint in _HINTS.items() if word in seen), None)
    return item.error(
        f"it is no image that can be read{because}; it looks like {seen}.",
        hint or "Pass a JPEG, PNG, WebP, GIF, TIFF, BMP or AVIF image.",
    )


def _icon_sizes(data: bytes) -> Iterator[tuple[int, int]]:
    """The sizes of the PNG images in an icon, which need not be those that its directory says."""
    start = data.find(b"\x89PNG\r\n\x1a\n")
    while start >= 0:
        header = data[start + 16 : start + 24]
        if len(header) == 8:
            yield int.from_bytes(header[:4], "big"), int.from_bytes(header[4:], "big")
        start = data.find(b"\x89PNG\r\n\x1a\n", start + 8)


def orientation(image: Image, data: bytes | None = None) -> int:
    """The EXIF orientation (1 to 8) that is still to be applied; anything odd counts as 1.

    Args:
        image: opened, decoded or not.
        data: its file, where a PNG's orientation is looked for: Pillow would decode the picture.
    """
    import PIL.Image

    if image.format == "TIFF":
        return 1  # Pillow turns it itself while it decodes.
    if data is not None and "exif" not in image.info:
        late = _late_exif(data)
        if late is not None:
            image.info["exif"] = late
    try:
        with silence():
            # Not the PNG plugin's own method, which decodes the picture.
            value = PIL.Image.Image.getexif(image).get(_ORIENTATION, 1)
    except Exception:  # noqa: BLE001 (a picture with broken EXIF is a picture nevertheless)
        return 1
    return value if type(value) is int and 1 <= value <= 8 else 1


def _late_exif(data: bytes) -> bytes | None:
    """A PNG's EXIF block, wherever it is; it may follow the pixels."""
    if not data.startswith(b"\x89PNG\r\n\x1a\n"):
        return None
    place = 8
    while place + 12 <= len(data):
        length = int.from_bytes(data[place : place + 4], "big")
        name = data[place + 4 : place + 8]
        if name == b"eXIf":
            return data[place + 8 : place + 8 + length]
        if not re.fullmatch(rb"[A-Za-z]{4}", name) or name == b"IEND":
            return None
        place += 12 + length
    return None


def turned(image: Image, orientation: int) -> Image:
    """The image the right way up."""
    from PIL.Image import Transpose

    method = {
        2: Transpose.FLIP_LEFT_RIGHT,
        3: Transpose.ROTATE_180,
        4: Transpose.FLIP_TOP_BOTTOM,
        5: Transpose.TRANSPOSE,
        6: Transpose.ROTATE_270,
        7: Transpose.TRANSVERSE,
        8: Transpose.ROTATE_90,
    }.get(orientation)
    return image if method is None else image.transpose(method)
