"""How Nemotron Omni reads a picture: at its own size within a budget, one soft token per 2 x 2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from phyla.family import MediaReader, MediaRequest, Plan, Prepared, Soft
from phyla_families.nemotron_h.omni_config import MERGE
from phyla_families.nemotron_h.pixels import resized, viewable
from phyla_families.nemotron_h.sizes import picture_grid, shortened

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from phyla.family import Affine
    from phyla.media import ImageFile
    from phyla_families.nemotron_h.preprocessing import ImageSettings

IMAGE, IMAGE_START, IMAGE_END = "<image>", "<img>", "</img>"


@dataclass(frozen=True)
class PictureLayout:
    """The size of a picture after resizing, in pixels."""

    height: int
    width: int


class ImageReader(MediaReader["ImageFile"]):
    """Reads pictures.

    Args:
        settings: what the checkpoint says about them.
        patch: pixels along the side of a patch.
    """

    token = IMAGE

    def __init__(self, settings: ImageSettings, patch: int) -> None:
        self._settings = settings
        self._patch = patch

    def plan(self, item: ImageFile, request: MediaRequest) -> Plan:
        """Choose a size by the picture's own, within the checkpoint's budget or the request's."""
        width, height = item.size
        rows, columns = self._grid(width, height, request.max_tokens)
        grid = rows // MERGE, columns // MERGE
        return Plan(
            pieces=(IMAGE_START, Soft(IMAGE, grid[0] * grid[1], grid), IMAGE_END),
            layout=PictureLayout(rows * self._patch, columns * self._patch),
        )

    def _grid(self, width: int, height: int, tokens: int | None) -> tuple[int, int]:
        patch, least = self._patch, self._settings.min_num_patches
        usual = picture_grid(
            width, height, patch=patch, least=least, most=self._settings.most_patches
        )
        if tokens is None or usual[0] * usual[1] <= tokens * MERGE**2:
            return usual
        if tokens < 1:
            raise ValueError(
                f"it takes at least one token, and {tokens} are allowed; raise 'max_tokens'"
            )
        most = tokens * MERGE**2
        grid = picture_grid(width, height, patch=patch, least=least, most=most, squeeze=True)
        return shortened(*grid, most)

    def prepare(self, item: ImageFile, plan: Plan) -> Prepared:
        """One frame, resized."""
        layout = plan.layout
        assert isinstance(layout, PictureLayout)
        size = layout.height, layout.width
        picture = resized(item.pixels(), size, self._settings.resample)
        caption = f"{layout.width} x {layout.height} pixels, {plan.count} soft tokens"
        return Prepared(
            frame_arrays(picture[None], self._settings.affine),
            views=lambda: [(caption, viewable(picture))],
        )


def frame_arrays(frames: NDArray[Any], affine: Affine) -> Mapping[str, NDArray[Any]]:
    """What the tower reads: frames `[F, H, W, 3]`, and how their pixels are scaled."""
    return {"frames": frames, **affine.arrays}
