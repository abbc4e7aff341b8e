"""WebP animations as videos, decoded by Pillow, because many builds of FFmpeg cannot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from phyla.errors import MediaError
from phyla.media.pillow import decoding, open_bytes
from phyla.media.pixels import from_pillow

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray
    from PIL.Image import Image

    from phyla.media.audio import AudioClip
    from phyla.media.item import Item
    from phyla.media.sources import Blob

# What browsers do with a frame that is to be shown for no time at all.
_SHORTEST = 0.1


@dataclass(frozen=True)
class Animation:
    """An animation whose frames were counted; see `phyla.media.video.Pictures`."""

    data: bytes
    item: Item
    size: tuple[int, int]
    timestamps: NDArray[np.float64]
    seconds: float

    @property
    def fps(self) -> float | None:
        """Frames per second on average."""
        return len(self.timestamps) / self.seconds

    def read(self, indices: Sequence[int]) -> Iterator[NDArray[np.uint8]]:
        """Decode frames, one at a time."""
        image = open_bytes(self.data, self.item)
        for index in indices:
            with decoding(self.item, self.data):
                image.seek(index)
                picture = from_pillow(image)
            yield picture

    def sound(self) -> AudioClip | None:
        """Animations have none."""
        return None


def is_webp(blob: Blob, item: Item) -> bool:
    """Whether a file is a WebP image."""
    with blob.open(item) as file:
        head = file.read(12)
    return head[:4] == b"RIFF" and head[8:] == b"WEBP"


def open_animation(blob: Blob, item: Item) -> Animation:
    """Decode an animation once, keeping nothing but the times of its frames.

    Raises:
        MediaError: its first frame does not decode, or there are too many.
    """
    data = blob.read(item)
    image = open_bytes(data, item)
    count = getattr(image, "n_frames", 1)
    if count > item.limits.max_frames:
        raise item.error(
            f"the animation has {count:,} frames; the limit is {item.limits.max_frames:,}.",
            "Cut it, or raise MediaLimits.max_frames.",
        )
    times = [0.0]
    with decoding(item, data):
        times.append(_show(image, 0))
    for place in range(1, count):
        try:
            with decoding(item, data):
                times.append(times[-1] + _show(image, place))
        except MediaError:
            break
    if times[-1] > item.limits.max_video_seconds:
        raise item.error(
            f"the animation lasts longer than {item.limits.max_video_seconds:g} seconds.",
            "Cut it, or raise MediaLimits.max_video_seconds.",
        )
    return Animation(data, item, image.size, np.array(times[:-1]), times[-1])


def _show(image: Image, place: int) -> float:
    """Decode a frame, and say for how many seconds it is shown."""
    image.seek(place)
    image.load()
    milliseconds = image.info.get("duration") or 0
    return milliseconds / 1000 or _SHORTEST
