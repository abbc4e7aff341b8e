"""Videos: which of their frames decode is found when opened, frames are decoded when asked for."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from phyla.errors import RequestError
from phyla.media.item import Item
from phyla.validation import shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from phyla.media.audio import AudioClip
    from phyla.media.limits import MediaLimits


class Pictures(Protocol):
    """Where the frames of a video come from.

    Attributes:
        size: (width, height) of every picture.
        fps: pictures per second on average, None when unknown.
        timestamps: [T] seconds from the first picture; they never go back.
        seconds: how long they are shown in all.
    """

    @property
    def size(self) -> tuple[int, int]: ...
    @property
    def fps(self) -> float | None: ...
    @property
    def timestamps(self) -> NDArray[np.float64]: ...
    @property
    def seconds(self) -> float: ...

    def read(self, indices: Sequence[int]) -> Iterator[NDArray[np.uint8]]:
        """Decode pictures, one at a time: [H, W, 3] each. The indices rise strictly."""
        ...

    def sound(self) -> AudioClip | None:
        """The sound that goes with them, if there is one."""
        ...


class VideoClip:
    """A video of which nothing is kept but the times of its frames. Make one with `open_video`.

    Attributes:
        size: (width, height) in pixels of every frame, the right way up. Pixels count as square.
        fps: frames per second on average, as the file says; None when unknown.
        timestamps: [frames] seconds from the first frame, of the frames that really decode, in the
            order of presentation. Where `fps` is unknown and the file has no times, pictures count
            as one second apart.
        count: how many frames decode.
        seconds: how long they are shown in all.
    """

    def __init__(self, pictures: Pictures) -> None:
        self._pictures = pictures
        self.size = pictures.size
        self.fps = pictures.fps
        self.timestamps = pictures.timestamps
        self.count = len(pictures.timestamps)
        self.seconds = pictures.seconds

    @cached_property
    def rate(self) -> float:
        """Frames per second: what the source says, else the mean of the times; 1 of a single frame.

        Raises:
            ValueError: all frames stand at one time.
        """
        if self.fps:
            return self.fps
        if self.count == 1:
            return 1.0
        seconds = float(self.timestamps[-1] - self.timestamps[0])
        if seconds <= 0:
            raise ValueError(
                "its frames bear no times, so that how many make a second is unknown; convert it, "
                "to MP4 for example, or pass its frames as pictures, with 'source_fps'"
            )
        return (self.count - 1) / seconds

    @cached_property
    def steady(self) -> bool:
        """Whether every frame stands where the rate alone would put it, to half a frame.

        Times in files are rounded; those that are worked out from the rate are then the better ones.

        Raises:
            ValueError: the rate is unknown.
        """
        found = (self.timestamps - self.timestamps[0]) * self.rate
        return bool(np.abs(found - np.arange(self.count)).max() < 0.5)

    def count_at(self, fps: float, *, rate: float | None = None) -> int:
        """How many frames make so many a second, rounded down: from none to all there are.

        Args:
            fps: frames for each second.
            rate: how many the video has; `rate` of the clip where it is None.

        Raises:
            ValueError: neither is known.
        """
        wanted = self.count / (rate or self.rate) * fps
        return int(
            min(self.count, wanted)
        )  # before it is cut to a whole number: it may be infinite

    def each(self, indices: Sequence[int]) -> Iterator[NDArray[np.uint8]]:
        """Decode frames by their places among `timestamps`, one at a time: [H, W, 3] RGB.

        A file is decoded once, from its start up to the last of them, and no frame is kept. Frames
        are the right way up.

        Args:
            indices: in ascending order; they may repeat, and give the same array again.

        Raises:
            RequestError: an index is out of range, or smaller than the one before it.
            MediaError: the file changed, or is gone; while frames are taken.
        """
        places = [int(index) for index in indices]
        if sorted(places) != places or (places and not 0 <= places[0] <= places[-1] < self.count):
            raise RequestError(
                f"indices should ascend within 0..{self.count - 1}; found {shown(places)}.",
                field="indices",
                found=places,
            )
        return self._decoded(places)

    def _decoded(self, places: Sequence[int]) -> Iterator[NDArray[np.uint8]]:
        repeats = Counter(places)
        for picture, times in zip(
            self._pictures.read(list(repeats)), repeats.values(), strict=True
        ):
            for _ in range(times):
                yield picture

    def frames(self, indices: Sequence[int]) -> NDArray[np.uint8]:
        """Decode frames as `each` does it, and keep them all: [n, H, W, 3].

        Raises:
            RequestError: an index is out of range, or smaller than the one before it.
            MediaError: the file changed, or is gone.
        """
        pictures = self.each(indices)
        width, height = self.size
        frames = np.empty((len(indices), height, width, 3), np.uint8)
        for place, picture in enumerate(pictures):
            frames[place] = picture
        return frames

    def sound(self) -> AudioClip | None:
        """The sound track; None if there is none, or nothing of it decodes.

        Raises:
            MediaError: it lasts too long.
        """
        return self._pictures.sound()

    def __repr__(self) -> str:
        return f"VideoClip(size={self.size}, count={self.count}, seconds={self.seconds:g})"


def open_video(source: object, *, index: int, limits: MediaLimits, fps: float | None) -> VideoClip:
    """See `phyla.media.open_video`."""
    from phyla.media.animation import is_webp, open_animation
    from phyla.media.arrays import as_array
    from phyla.media.film import open_film
    from phyla.media.slides import from_array, from_images
    from phyla.media.sources import find

    item = Item("video", index, limits)
    if fps is not None and not (isinstance(fps, int | float) and 0 < fps < float("inf")):
        raise item.error(f"fps should be a positive number or None; found {fps!r}.")
    array = as_array(source)
    if array is not None:
        return VideoClip(from_array(array, fps, item))
    if isinstance(source, list | tuple):
        images: Sequence[Any] = source
        return VideoClip(from_images(images, fps, item))
    blob = find(source, item)
    if is_webp(blob, item):
        return VideoClip(open_animation(blob, item))
    return VideoClip(open_film(blob, item))
