"""How Qwen3-VL and Qwen3.5 read a video: pairs of frames, each under the time at which it stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from phyla.family import MediaReader, MediaRequest, Plan, Prepared, Soft
from phyla.media import resized
from phyla_families.qwen3.image_reader import VISION_END, VISION_START, frame_arrays
from phyla_families.qwen3.resize import capped_blocks, fitted_blocks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from phyla.media import VideoClip
    from phyla_families.qwen3.preprocessing import VideoSettings


@dataclass(frozen=True)
class VideoLayout:
    """Which frames are looked at, their times, and their size after resizing, in pixels."""

    indices: tuple[int, ...]
    seconds: tuple[float, ...]
    height: int
    width: int


class VideoReader(MediaReader["VideoClip"]):
    """Reads videos.

    Args:
        settings: what the checkpoint says about them.
        block: pixels along the side of a soft token.
        span: frames in a patch.
    """

    token = "<|video_pad|>"
    # The marks that the template writes stay where they are, around those of the frames.
    before = VISION_START
    after = VISION_END

    def __init__(self, settings: VideoSettings, block: int, span: int) -> None:
        self._settings = settings
        self._block = block
        self._span = span

    def plan(self, item: VideoClip, request: MediaRequest) -> Plan:
        """Choose frames, a size for all of them, and write a time before each pair."""
        times = _times(item)
        indices = self._sampled(item, request)
        spans = -(-len(indices) // self._span)
        rows, columns = self._blocks(item, len(indices), spans, request.max_tokens)
        pieces: list[str | Soft] = []
        for start in range(0, spans * self._span, self._span):
            last = min(start + self._span, len(indices)) - 1
            middle = (times[indices[start]] + times[indices[last]]) / 2
            pieces += [
                f"<{middle:.1f} seconds>{VISION_START}",
                Soft(self.token, rows * columns, (rows, columns)),
                VISION_END,
            ]
        layout = VideoLayout(
            indices=tuple(indices),
            seconds=tuple(float(times[index]) for index in indices),
            height=rows * self._block,
            width=columns * self._block,
        )
        return Plan(pieces=tuple(pieces), layout=layout)

    def _sampled(self, item: VideoClip, request: MediaRequest) -> list[int]:
        """Frames that lie evenly, the first and the last among them."""
        settings = self._settings
        most = settings.max_frames if request.max_frames is None else request.max_frames
        count = item.count_at(request.fps or settings.fps)
        count = min(max(count, settings.min_frames), most, item.count)
        return [round(place) for place in np.linspace(0, item.count - 1, count).tolist()]

    def _blocks(
        self, item: VideoClip, frames: int, spans: int, most: int | None
    ) -> tuple[int, int]:
        settings = self._settings
        width, height = item.size
        if min(width, height) < self._block:
            grow = max(self._block / height, self._block / width)
            height, width = int(height * grow), int(width * grow)
        # A single frame is shown twice.
        shown = max(frames, self._span)
        rows, columns = fitted_blocks(
            width,
            height,
            block=self._block,
            least=settings.least_pixels,
            most=self._most_pixels(shown),
            frames=shown,
            counted=round(shown / self._span) * self._span,
        )
        if most is None or spans * rows * columns <= most:
            return rows, columns
        if most < spans:
            raise ValueError(
                f"{frames} of its frames take at least {spans} soft tokens, more than the {most} "
                f"allowed; look at fewer frames, with 'max_frames' or a lower 'fps'"
            )
        return capped_blocks(width, height, block=self._block, most=most // spans)

    def _most_pixels(self, frames: int) -> int:
        settings = self._settings
        if not settings.cap_pixels_per_frame:
            return settings.most_pixels
        share = min(settings.max_video_tokens * self._block**2, settings.most_pixels // frames)
        return max(share, int(settings.least_pixels * 1.05)) * frames

    def prepare(self, item: VideoClip, plan: Plan) -> Prepared:
        """The frames, resized; the last one is repeated where a pair is not full."""
        layout = plan.layout
        assert isinstance(layout, VideoLayout)
        size = layout.height, layout.width
        frames = np.empty((len(layout.indices), *size, 3), np.uint8)
        for place, frame in enumerate(item.each(layout.indices)):
            frames[place] = resized(frame, size, self._settings.resample)
        captions = [f"{seconds:.2f} s" for seconds in layout.seconds]
        return Prepared(
            frame_arrays(frames, self._settings),
            views=lambda: list(zip(captions, frames, strict=True)),
        )


def _times(item: VideoClip) -> NDArray[np.float64]:
    """The seconds at which the frames stand, from the first on.

    Where the rate does not change they are worked out from it, as the reference does: the times in
    a file are rounded, which shows in the text where one lies between two tenths.
    """
    if item.count < 1:
        raise ValueError("it holds no frame")
    if item.steady:
        return np.arange(item.count) / item.rate
    return item.timestamps - item.timestamps[0]
