"""How Gemma 4 looks at a video: some of its frames, each an image with the time before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from phyla.family import MediaReader, Plan, Prepared, Soft
from phyla_families.gemma4 import tokens

if TYPE_CHECKING:
    from phyla.family import MediaRequest
    from phyla.media import VideoClip
    from phyla_families.gemma4.image_reader import Look

# What upstream takes for the rate of a video that does not say it.
_FPS = 24.0


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Which frames are looked at.

    Attributes:
        frames: how many; None for all.
        fps: how many for each second instead; None where `frames` says it.
    """

    frames: int | None
    fps: float | None


@dataclass(frozen=True)
class _Layout:
    grid: tuple[int, int]
    indices: tuple[int, ...]
    stamps: tuple[str, ...]


class VideoReader(MediaReader["VideoClip"]):
    """Reads videos.

    Args:
        look: how frames are made ready.
        sampling: which frames, where a request does not say.
    """

    token = tokens.VIDEO

    def __init__(self, look: Look, sampling: Sampling) -> None:
        self._look = look
        self._sampling = sampling

    def plan(self, item: VideoClip, request: MediaRequest) -> Plan:
        """A time stamp and a run of soft tokens for each frame.

        As upstream has it, a stamp is the frame's number by the average rate, also where the rate
        changes.

        `request.max_tokens` lowers the number of frames, since a frame's budget is the smallest
        that there is; `request.max_frames` takes the place of the usual number.
        """
        if item.count < 1:
            raise ValueError("it holds no frame")
        grid = self._look.grid(item.size, self._look.budget)
        each = grid[0] * grid[1]
        count = self._frames(item, request)
        if request.max_tokens is not None:
            count = min(count, request.max_tokens // each)
            if count < 1:
                raise ValueError(
                    f"one frame takes {each} tokens, and {request.max_tokens} are allowed; raise "
                    f"'max_tokens'"
                )
        indices = tuple(number * item.count // count for number in range(count))
        fps = item.fps or _FPS
        stamps = tuple(_stamp(index / fps) for index in indices)
        pieces: list[str | Soft] = []
        end = ""
        for stamp in stamps:
            pieces += [f"{end}{stamp} {tokens.IMAGE_BEGIN}", Soft(tokens.VIDEO, each, grid)]
            end = f"{tokens.IMAGE_END} "
        return Plan(pieces=(*pieces, tokens.IMAGE_END), layout=_Layout(grid, indices, stamps))

    def prepare(self, item: VideoClip, plan: Plan) -> Prepared:
        """`pixels`: the resized frames, uint8 `[frames, H, W, 3]`."""
        layout = cast("_Layout", plan.layout)
        height, width = self._look.pixels(layout.grid)
        frames = np.empty((len(layout.indices), height, width, 3), np.uint8)
        for place, frame in enumerate(item.each(layout.indices)):
            frames[place] = self._look.resized(frame, layout.grid)
        captions = [
            f"{stamp}, frame {index}"
            for stamp, index in zip(layout.stamps, layout.indices, strict=True)
        ]
        return Prepared({"pixels": frames}, lambda: list(zip(captions, frames, strict=True)))

    def _frames(self, item: VideoClip, request: MediaRequest) -> int:
        """How many frames to look at; they are spread evenly."""
        fps = request.fps or (None if request.max_frames else self._sampling.fps)
        wanted = self._sampling.frames
        if fps is not None:
            wanted = max(1, item.count_at(fps, rate=item.fps or _FPS))
            wanted = min(wanted, request.max_frames or wanted)
        elif request.max_frames is not None:
            wanted = request.max_frames
        return item.count if wanted is None else min(wanted, item.count)


def _stamp(seconds: float) -> str:
    """Minutes and seconds, the latter rounded down: `02:05`."""
    return f"{int(seconds // 60):02d}:{int(seconds % 60):02d}"
