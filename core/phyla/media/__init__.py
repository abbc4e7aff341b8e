"""Opens images, sounds and videos, wherever they come from. Knows no model and no message.

    picture = phyla.media.open_image("photo.jpg")
    picture.size, picture.pixels()

Importing this module loads neither numpy nor any media library; they are imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from phyla.media.limits import MediaLimits

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image

    from phyla.media.audio import AudioClip
    from phyla.media.image import ImageFile
    from phyla.media.mel import mel_filters
    from phyla.media.resize import resized, resized_floats
    from phyla.media.video import VideoClip

_HOME = {
    "ImageFile": "phyla.media.image",
    "AudioClip": "phyla.media.audio",
    "VideoClip": "phyla.media.video",
    "mel_filters": "phyla.media.mel",
    "resized": "phyla.media.resize",
    "resized_floats": "phyla.media.resize",
}

__all__ = [
    "AudioClip",
    "ImageFile",
    "MediaLimits",
    "VideoClip",
    "contact_sheet",
    "mel_filters",
    "mel_picture",
    "open_audio",
    "open_image",
    "open_video",
    "resized",
    "resized_floats",
]

_DEFAULTS = MediaLimits()


def open_image(source: object, *, index: int = 0, limits: MediaLimits = _DEFAULTS) -> ImageFile:
    """Open an image and read its header; nothing is decoded yet.

    Args:
        source: bytes, a path, a `file:`, `data:` or (if the limits allow it) `http(s):` URL, base64
            text, a PIL image, or a numpy or MLX array: [H, W], [H, W, 1|2|3|4] or, where that cannot
            be mistaken, [1|2|3|4, H, W], of uint8, uint16, bool, or floats from 0 to 1.
        index: which item of the request it is, for errors.
        limits: what is refused.

    Raises:
        MediaError: it cannot be read, or it is too large.
    """
    from phyla.media.image import open_image as open_

    return open_(source, index=index, limits=limits)


def open_audio(
    source: object,
    *,
    index: int = 0,
    limits: MediaLimits = _DEFAULTS,
    rate: int | None = None,
) -> AudioClip:
    """Open and decode a sound: of a video file, too.

    Args:
        source: bytes, a path, a `file:`, `data:` or (if the limits allow it) `http(s):` URL, base64
            text, or a numpy or MLX array of samples: [N], or [N, channels] or [channels, N] where
            that cannot be mistaken (at most 8 channels, more than 8 samples), of integers, which
            are scaled by their type, or floats from -1 to 1.
        index: which item of the request it is, for errors.
        limits: what is refused.
        rate: an array's samples per second. A file says so itself.

    Raises:
        MediaError: it cannot be read, holds no sound, or lasts too long.
    """
    from phyla.media.audio import open_audio as open_

    return open_(source, index=index, limits=limits, rate=rate)


def open_video(
    source: object,
    *,
    index: int = 0,
    limits: MediaLimits = _DEFAULTS,
    fps: float | None = None,
) -> VideoClip:
    """Open a video and find which of its frames decode; no frame is kept.

    Args:
        source: bytes, a path, a `file:`, `data:` or (if the limits allow it) `http(s):` URL, base64
            text, a numpy or MLX array [T, H, W, 3] of uint8 or floats from 0 to 1, or a sequence of
            images, each of them anything that `open_image` takes.
        index: which item of the request it is, for errors.
        limits: what is refused.
        fps: how many pictures of an array or a sequence make a second. A file says so itself.

    Raises:
        MediaError: it cannot be read, holds no frame that decodes, or is too large.
    """
    from phyla.media.video import open_video as open_

    return open_(source, index=index, limits=limits, fps=fps)


def contact_sheet(views: Sequence[NDArray[np.uint8]], captions: Sequence[str] = ()) -> Image:
    """Lay pictures of any sizes out on one canvas, each under its caption.

    Args:
        views: pictures [H, W, 3].
        captions: one for each of the first pictures; the others go without.

    The pictures are scaled down if the canvas would be more than 4096 pixels wide or high.
    """
    from phyla.media.sheet import contact_sheet as lay_out

    return lay_out(views, captions)


def mel_picture(mel: NDArray[np.floating]) -> NDArray[np.uint8]:
    """Draw a log-mel spectrogram [frames, bins] in grey: [bins, frames, 3], low bins at the bottom."""
    from phyla.media.sheet import mel_picture as draw

    return draw(mel)


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'phyla.media' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
