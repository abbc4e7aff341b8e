"""Which frames of a video MiniCPM-V looks at: one a second, perhaps others stacked beside it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np

if TYPE_CHECKING:
    from phyla.media import VideoClip

_Item = TypeVar("_Item")

# A picture that is shown: one frame, or several that lie on one canvas.
Unit: TypeAlias = tuple[int, ...]

# Tells which frame is shown at a moment, in seconds.
Clock: TypeAlias = Callable[[float], int]

_ROUNDING = 1e-6
_LONGEST = 1e9  # seconds


def all_frames(count: int, *, most: int) -> list[Unit]:
    """Every frame, or as many as there may be, evenly; for a video that says nothing of time."""
    return [(index,) for index in _thinned(range(count), most)]


def clock(clip: VideoClip) -> Clock:
    """What is shown at a moment: the frame that its number of the average rate falls on.

    Where frames are not evenly spaced, or the source does not say its rate, the last that has begun.
    """
    timestamps, fps, last = clip.timestamps, clip.fps, clip.count - 1
    if fps is not None and clip.steady:
        return lambda moment: int(min(last, moment * fps))
    return lambda moment: max(int(np.searchsorted(timestamps, moment, side="right")) - 1, 0)


def sampled(clip: VideoClip, *, most: int, stack: int) -> list[Unit]:
    """The model's own choice.

    Args:
        clip: the video.
        most: the most moments.
        stack: frames of each second. The first stands by itself; a canvas with the others follows.
    """
    frame, seconds = clock(clip), clip.seconds
    whole = max(math.ceil(seconds), 1)
    if seconds > most:
        ticks = _thinned(range(int(seconds / 0.1)), most)
        mains = [frame(round(tick * 0.1, 1)) for tick in ticks]
    else:
        mains = [frame(second) for second in range(whole)]
    stacked = [
        (second, moment)
        for second in range(whole)
        for part in range(1, stack)
        if (moment := second + part / stack) < seconds
    ]
    groups: dict[int, list[int]] = {}
    for second, moment in _thinned(stacked, most * (stack - 1)):
        groups.setdefault(second, []).append(frame(moment))
    # The canvas of second i follows moment i, also where moments were thinned out.
    return _interleaved(mains, [groups.get(second, []) for second in range(whole)])


def every(clip: VideoClip, fps: float, *, most: int, stack: int) -> list[Unit]:
    """As `sampled`, with so many moments a second, or fewer if they are too many.

    There are no more moments than frames: a frame is not looked at again because more were asked for.
    """
    frame, seconds, most = clock(clip), clip.seconds, min(most, clip.count)
    # Of a video without length, any period is one moment; and none is without end.
    period = min(max(1 / fps, seconds / most), _LONGEST) or 1.0
    # Rounding makes no moment, and misses none.
    moments = min(max(math.ceil(seconds / period - _ROUNDING), 1), most)
    parts = [
        [
            frame(moment + _ROUNDING)
            for part in range(1, stack)
            if (moment := (index + part / stack) * period) < seconds
        ]
        for index in range(moments)
    ]
    return _interleaved([frame(index * period + _ROUNDING) for index in range(moments)], parts)


def _interleaved(mains: Sequence[int], parts: Sequence[Sequence[int]]) -> list[Unit]:
    units: list[Unit] = []
    for index, main in enumerate(mains):
        units.append((main,))
        if index < len(parts) and parts[index]:
            units.append(tuple(parts[index]))
    return units


def _thinned(items: Sequence[_Item], most: int) -> Sequence[_Item]:
    if len(items) <= most:
        return items
    return [items[int(index)] for index in np.linspace(0, len(items) - 1, most, dtype=int)]
