"""Videos that come as pictures: an array of frames, or a sequence of images."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from phyla.media.image import ImageFile, read_image
from phyla.media.pixels import from_array as picture_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from phyla.media.audio import AudioClip
    from phyla.media.item import Item


@dataclass(frozen=True)
class Slides:
    """Pictures of one size, equally far apart in time; see `phyla.media.video.Pictures`."""

    images: Sequence[ImageFile] | NDArray[np.uint8]
    size: tuple[int, int]
    fps: float | None

    @property
    def timestamps(self) -> NDArray[np.float64]:
        """[T] seconds, one apart when `fps` is unknown."""
        return np.arange(len(self.images)) / (self.fps or 1.0)

    @property
    def seconds(self) -> float:
        """How long they are shown in all."""
        return len(self.images) / (self.fps or 1.0)

    def read(self, indices: Sequence[int]) -> Iterator[NDArray[np.uint8]]:
        """The pictures, one at a time."""
        for index in indices:
            image = self.images[index]
            yield image.pixels() if isinstance(image, ImageFile) else image.copy()

    def sound(self) -> AudioClip | None:
        """Pictures have none."""
        return None


def from_array(array: NDArray[Any], fps: float | None, item: Item) -> Slides:
    """Frames [T, H, W, channels], each as `open_image` takes it.

    Raises:
        MediaError: it is no such array, or too large.
    """
    if array.ndim != 4 or not len(array):
        raise item.error(
            f"an array of shape {array.shape} is no video.", "Pass [frames, height, width, 3]."
        )
    _check(len(array), fps, item)
    frames = np.stack([picture_of(frame, item) for frame in array])
    return Slides(frames, (frames.shape[2], frames.shape[1]), fps)


def from_images(sources: Sequence[Any], fps: float | None, item: Item) -> Slides:
    """One frame from each image.

    Raises:
        MediaError: an image cannot be read, or is not as large as the first.
    """
    if not sources:
        raise item.error("the list of pictures is empty.", "Leave it out.")
    _check(len(sources), fps, item)
    images: list[ImageFile] = []
    for place, source in enumerate(sources):
        part = replace(item, part=f"picture {place}")
        images.append(read_image(source, part))
        if images[-1].size != images[0].size:
            raise part.error(
                f"it has {_size(images[-1])} pixels, and the first {_size(images[0])}.",
                "Bring the pictures to one size.",
            )
    return Slides(images, images[0].size, fps)


def _size(image: ImageFile) -> str:
    return "{}x{}".format(*image.size)


def _check(count: int, fps: float | None, item: Item) -> None:
    if count > item.limits.max_frames:
        raise item.error(
            f"there are {count:,} pictures; the limit is {item.limits.max_frames:,}.",
            "Leave some out, or raise MediaLimits.max_frames.",
        )
    if fps and count / fps > item.limits.max_video_seconds:
        raise item.error(
            f"the video lasts longer than {item.limits.max_video_seconds:g} seconds.",
            "Cut it, or raise MediaLimits.max_video_seconds.",
        )
