"""How Nemotron Omni reads a video: pairs of frames, each behind the times at which they stand.

All soft tokens of a pair are kept. NVIDIA's pruning (EVS, arXiv:2510.14624) drops those that differ
little from the pair before, which only the tower's output tells; it saves tokens and is no part of
the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from phyla.family import MediaReader, MediaRequest, Plan, Prepared, Soft
from phyla_families.nemotron_h.image_reader import IMAGE, IMAGE_END, IMAGE_START, frame_arrays
from phyla_families.nemotron_h.omni_config import MERGE
from phyla_families.nemotron_h.pixels import resized, viewable
from phyla_families.nemotron_h.sizes import frame_grid, shortened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from phyla.media import VideoClip
    from phyla_families.nemotron_h.preprocessing import VideoSettings

VIDEO = "<video>"

# The most frames where neither the files nor the request say how many.
_MOST_FRAMES = 128


@dataclass(frozen=True)
class FilmLayout:
    """Which frames are looked at, what stands before them, and their size after resizing."""

    indices: tuple[int, ...]
    labels: tuple[str, ...]
    height: int
    width: int


class VideoReader(MediaReader["VideoClip"]):
    """Reads videos. Their soft tokens are those of images.

    Args:
        settings: what the checkpoint says about them.
        patch: pixels along the side of a patch.
        span: frames in a patch.
    """

    token = VIDEO

    def __init__(self, settings: VideoSettings, patch: int, span: int) -> None:
        self._settings = settings
        self._patch = patch
        self._span = span

    def plan(self, item: VideoClip, request: MediaRequest) -> Plan:
        """Choose frames, a size for all of them, and write the times before each pair."""
        if item.count < 1:
            raise ValueError("it holds no frame")
        indices = self._sampled(item, request)
        labels = _labels(item, indices)
        spans = [labels[at : at + self._span] for at in range(0, len(labels), self._span)]
        rows, columns = self._grid(item.size, len(indices), len(spans), request.max_tokens)
        grid = rows // MERGE, columns // MERGE
        pieces: list[str | Soft] = []
        before = ""
        for several in spans:
            said = " and ".join([f"Frame {several[0]}", *(f"frame {each}" for each in several[1:])])
            pieces += [f"{before}{said}: {IMAGE_START}", Soft(IMAGE, grid[0] * grid[1], grid)]
            before = f"{IMAGE_END}\n"
        layout = FilmLayout(
            indices=tuple(indices),
            labels=tuple(labels),
            height=rows * self._patch,
            width=columns * self._patch,
        )
        return Plan(pieces=(*pieces, IMAGE_END), layout=layout)

    def _sampled(self, item: VideoClip, request: MediaRequest) -> Sequence[int]:
        """Frames that lie evenly, from the first on."""
        settings, total = self._settings, item.count
        most = request.max_frames
        if not settings.do_sample_frames and request.fps is None:
            count = total
        elif settings.num_frames is not None and request.fps is None:
            count = settings.num_frames
        else:
            count = max(1, item.count_at(request.fps or settings.fps))
            most = _MOST_FRAMES if most is None else most
        count = min(count, total, total if most is None else most)
        return [number * total // count for number in range(count)]

    def _grid(
        self, size: tuple[int, int], frames: int, spans: int, most: int | None
    ) -> tuple[int, int]:
        settings = self._settings
        rows, columns = frame_grid(*size, target=settings.target, square=not settings.keep_ratio)
        if most is None or spans * rows * columns <= most * MERGE**2:
            return rows, columns
        if most < spans:
            raise ValueError(
                f"{frames} of its frames take at least {spans} soft tokens, more than the {most} "
                f"allowed; look at fewer frames, with 'max_frames' or a lower 'fps'"
            )
        share = most // spans * MERGE**2
        grid = frame_grid(*size, target=share, square=not settings.keep_ratio)
        return shortened(*grid, share)

    def prepare(self, item: VideoClip, plan: Plan) -> Prepared:
        """The frames, resized; the tower repeats the last one where a pair is not full."""
        layout = plan.layout
        assert isinstance(layout, FilmLayout)
        size = layout.height, layout.width
        frames = np.stack([resized(frame, size) for frame in item.each(layout.indices)])
        return Prepared(
            frame_arrays(frames, self._settings.affine),
            views=lambda: [
                (f"frame {label}", viewable(frame))
                for label, frame in zip(layout.labels, frames, strict=True)
            ],
        )


def _labels(item: VideoClip, indices: Sequence[int]) -> list[str]:
    """What is said of each frame: its number, and when it is seen if that is known.

    Where the rate does not change the time is worked out from it, in whole milliseconds for a frame
    as upstream does it; else it is what the file says.
    """
    if not item.fps:
        return [str(number) for number in range(1, len(indices) + 1)]
    if item.steady:
        millis = int(1000.0 / item.fps)
        times = [index * millis / 1000.0 for index in indices]
    else:
        times = [float(item.timestamps[index] - item.timestamps[0]) for index in indices]
    return [f"{number} sampled at {time:.2f} seconds" for number, time in enumerate(times, 1)]
