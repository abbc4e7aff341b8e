"""How MiniCPM-V 4.6 and 4.7 read a video: as images of its moments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from phyla.family import MediaReader, Plan
from phyla_families.minicpm.expansion import joined, numbered, picture_pieces
from phyla_families.minicpm.image_reader import smaller_resolutions
from phyla_families.minicpm.pixels import canvas, captions, prepared, unit_size, views
from phyla_families.minicpm.sampling import all_frames, every, sampled
from phyla_families.minicpm.slicing import Slicing, slicing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from phyla.family import MediaRequest, Prepared, Soft
    from phyla.media import VideoClip
    from phyla_families.minicpm.preprocessing import VideoSettings
    from phyla_families.minicpm.sampling import Unit
    from phyla_families.minicpm.tower_config import TowerConfig


@dataclass(frozen=True)
class VideoLayout:
    """What of a video is shown, and how each picture is cut."""

    units: tuple[Unit, ...]
    slicings: tuple[Slicing, ...]

    def tokens(self, unit: int) -> int:
        """Soft tokens in all."""
        return sum(each.tokens(unit) for each in self.slicings)


class VideoReader(MediaReader["VideoClip"]):
    """Frames, and canvases of frames between them, each like an image.

    Args:
        settings: of the preprocessor files.
        tower: says how many pixels a patch and a soft token have.
        number: whether videos are numbered in the prompt.
    """

    token = "<|video_pad|>"

    def __init__(self, settings: VideoSettings, tower: TowerConfig, *, number: bool) -> None:
        self._settings = settings
        self._patch, self._unit = tower.patch_size, tower.unit
        self._number = number

    def plan(self, item: VideoClip, request: MediaRequest) -> Plan:
        """Fewer slices, then fewer moments, then smaller ones, where `max_tokens` asks for it."""
        layout = self._layout(item, request)
        return Plan(pieces=joined(self._pieces(layout, request.number)), layout=layout)

    def prepare(self, item: VideoClip, plan: Plan) -> Prepared:
        """Decode the frames, stack, scale and cut."""
        layout = plan.layout
        assert isinstance(layout, VideoLayout)
        names = [
            caption
            for unit, how in zip(layout.units, layout.slicings, strict=True)
            for caption in captions(how, _name(item, unit))
        ]
        return prepared(self._views(item, layout), names, self._patch, self._settings)

    def _pieces(self, layout: VideoLayout, number: int) -> Iterator[str | Soft]:
        if self._number:
            yield numbered(number)
        for how in layout.slicings:
            yield from picture_pieces(how, self.token, self._unit)

    def _views(self, item: VideoClip, layout: VideoLayout) -> Iterator[NDArray[np.uint8]]:
        """Of all units in order; one that is complete before its turn waits, already scaled."""
        waiting: dict[int, list[NDArray[np.uint8]]] = {}
        upcoming = 0
        for place, picture in pictures(item, layout.units):
            how = layout.slicings[place]
            waiting[place] = list(views(picture, how, self._settings.resample))
            while upcoming in waiting:
                yield from waiting.pop(upcoming)
                upcoming += 1

    def _layout(self, item: VideoClip, request: MediaRequest) -> VideoLayout:
        most = request.max_tokens
        least = 0
        for layout in self._layouts(item, request):
            least = layout.tokens(self._unit)
            if most is None or least <= most:
                return layout
        raise ValueError(
            f"one moment takes {least} soft tokens or more, and it may take {most}; raise "
            f"'max_tokens'"
        )

    def _layouts(self, item: VideoClip, request: MediaRequest) -> Iterator[VideoLayout]:
        """Ways to show a video, the best first."""
        settings = self._settings
        moments = request.max_frames or settings.max_num_frames
        units = self._units(item, request, moments)
        layout = None
        for max_slices in range(settings.max_slices, 0, -1):
            layout = self._cut(item, units, settings.scale_resolution, max_slices)
            yield layout
        assert layout is not None
        moments = min(moments, len(units))
        while moments > 1:
            fitting = moments * (request.max_tokens or 0) // layout.tokens(self._unit)
            moments = max(min(moments - 1, fitting), 1)
            units = self._units(item, request, moments)
            layout = self._cut(item, units, settings.scale_resolution, 1)
            yield layout
        for resolution in smaller_resolutions(settings.scale_resolution, self._unit):
            yield self._cut(item, units, resolution, 1)

    def _units(self, item: VideoClip, request: MediaRequest, most: int) -> list[Unit]:
        settings, stack = self._settings, self._settings.stack_frames
        if request.fps is None and not settings.do_sample_frames:
            return all_frames(item.count, most=most)
        if request.fps is None:
            return sampled(item, most=most, stack=stack)
        return every(item, request.fps, most=most, stack=stack)

    def _cut(
        self, item: VideoClip, units: Sequence[Unit], resolution: int, max_slices: int
    ) -> VideoLayout:
        width, height = item.size
        # Few sizes differ: of frames, and of canvases with one number of frames or another.
        by_count = {
            len(unit): slicing(
                unit_size(unit, (height, width)),
                resolution=resolution, unit=self._unit, max_slices=max_slices,
            )
            for unit in units
        }  # fmt: skip
        return VideoLayout(tuple(units), tuple(by_count[len(unit)] for unit in units))


def pictures(item: VideoClip, units: Sequence[Unit]) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """The places of units, and their pictures, as soon as the last frame of each was decoded.

    The video is decoded once. Frames are kept while they wait for the others on their canvas.
    """
    shown_in: dict[int, list[int]] = {}
    for place, unit in enumerate(units):
        for index in set(unit):
            shown_in.setdefault(index, []).append(place)
    wanted = sorted(shown_in)
    held: dict[int, dict[int, NDArray[np.uint8]]] = {}
    for index, frame in zip(wanted, item.each(wanted), strict=True):
        for place in shown_in[index]:
            found = held.setdefault(place, {})
            found[index] = frame
            if len(found) == len(set(units[place])):
                del held[place]
                yield place, canvas([found[each] for each in units[place]])


def _name(item: VideoClip, unit: Unit) -> str:
    moments = ", ".join(f"{float(item.timestamps[index]):.1f}" for index in unit)
    return f"{moments} s"
