"""Videos without files, for the tests of readers: what is decoded, how often, and what is kept."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from phyla.media import VideoClip

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from phyla.media import AudioClip


@dataclass
class Footage:
    """The pictures of a video; see `phyla.media.video.Pictures`.

    Attributes:
        count: how many frames there are.
        size: their width and height.
        fps: how many a second; None when unknown.
        times: when they are seen; evenly by `fps`, or one a second, when this is None.
        draw: makes the frame of a place; all grey, as bright as its place, when this is None.
        decoded: the places of the frames that were decoded.
        passes: how often decoding began.
        most_held: the most decoded frames that were in use at once.
    """

    count: int
    size: tuple[int, int] = (64, 48)
    fps: float | None = None
    times: Sequence[float] | None = None
    draw: Callable[[int], NDArray[np.uint8]] | None = None
    decoded: list[int] = field(default_factory=list[int])
    passes: int = 0
    most_held: int = 0
    _held: int = 0

    @property
    def timestamps(self) -> NDArray[np.float64]:
        """[count] seconds."""
        if self.times is not None:
            return np.array(self.times, np.float64)
        return np.arange(self.count) / (self.fps or 1.0)

    @property
    def seconds(self) -> float:
        """How long they are shown in all."""
        return self.count / (self.fps or 1.0)

    @property
    def clip(self) -> VideoClip:
        """The video."""
        return VideoClip(self)

    def read(self, indices: Sequence[int]) -> Iterator[NDArray[np.uint8]]:
        """Decode frames, one at a time."""
        self.passes += 1
        width, height = self.size
        for index in indices:
            self.decoded.append(index)
            if self.draw is None:
                frame = np.full((height, width, 3), index % 256, np.uint8)
            else:
                frame = self.draw(index)
            self._held += 1
            self.most_held = max(self.most_held, self._held)
            weakref.finalize(frame, self._let_go)
            yield frame
            del frame

    def sound(self) -> AudioClip | None:
        """There is none."""
        return None

    def _let_go(self) -> None:
        self._held -= 1
