"""How MiniCPM-V 4.6 and 4.7 read an image."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from phyla.family import MediaReader, Plan
from phyla_families.minicpm.expansion import joined, numbered, picture_pieces
from phyla_families.minicpm.pixels import captions, prepared, views
from phyla_families.minicpm.slicing import Slicing, slicing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from phyla.family import MediaRequest, Prepared
    from phyla.media import ImageFile
    from phyla_families.minicpm.preprocessing import PictureSettings
    from phyla_families.minicpm.tower_config import TowerConfig


class ImageReader(MediaReader["ImageFile"]):
    """An overview, and slices of a large image.

    Args:
        settings: of the preprocessor files.
        tower: says how many pixels a patch and a soft token have.
        number: whether images are numbered in the prompt.
    """

    token = "<|image_pad|>"

    def __init__(self, settings: PictureSettings, tower: TowerConfig, *, number: bool) -> None:
        self._settings = settings
        self._patch, self._unit = tower.patch_size, tower.unit
        self._number = number

    def plan(self, item: ImageFile, request: MediaRequest) -> Plan:
        """Fewer slices, then a smaller overview, where `max_tokens` asks for it."""
        width, height = item.size
        layout = self._layout((height, width), request.max_tokens)
        start = [numbered(request.number)] if self._number else []
        pieces = picture_pieces(layout, self.token, self._unit)
        return Plan(pieces=joined(chain(start, pieces)), layout=layout)

    def prepare(self, item: ImageFile, plan: Plan) -> Prepared:
        """Scale and cut."""
        layout = plan.layout
        assert isinstance(layout, Slicing)
        pictures = views(item.pixels(), layout, self._settings.resample)
        return prepared(pictures, captions(layout, "image"), self._patch, self._settings)

    def _layout(self, size: tuple[int, int], most: int | None) -> Slicing:
        least = None
        for layout in layouts(size, self._settings, self._unit):
            count = layout.tokens(self._unit)
            if most is None or count <= most:
                return layout
            least = min(least or count, count)
        raise ValueError(
            f"it takes {least} soft tokens or more, and may take {most}; raise 'max_tokens'"
        )


def layouts(size: tuple[int, int], settings: PictureSettings, unit: int) -> Iterator[Slicing]:
    """Ways to cut a picture of `(height, width)`, the best first."""
    resolution = settings.scale_resolution
    for max_slices in range(settings.max_slices, 0, -1):
        yield slicing(size, resolution=resolution, unit=unit, max_slices=max_slices)
    for smaller in smaller_resolutions(resolution, unit):
        yield slicing(size, resolution=smaller, unit=unit, max_slices=1)


def smaller_resolutions(resolution: int, unit: int) -> range:
    """What to try where even an overview has too many soft tokens."""
    return range((resolution - 1) // unit * unit, 0, -unit)
