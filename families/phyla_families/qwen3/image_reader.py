"""How Qwen3-VL and Qwen3.5 read a picture: resized to whole blocks, one soft token for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from phyla.family import MediaReader, MediaRequest, Plan, Prepared, Soft
from phyla.media import resized
from phyla_families.qwen3.resize import capped_blocks, fitted_blocks

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from phyla.media import ImageFile
    from phyla_families.qwen3.preprocessing import ImageSettings

VISION_START = "<|vision_start|>"
VISION_END = "<|vision_end|>"


@dataclass(frozen=True)
class PictureLayout:
    """The size of a picture after resizing, in pixels."""

    height: int
    width: int


class ImageReader(MediaReader["ImageFile"]):
    """Reads pictures.

    Args:
        settings: what the checkpoint says about them.
        block: pixels along the side of a soft token.
    """

    token = "<|image_pad|>"
    before = VISION_START
    after = VISION_END

    def __init__(self, settings: ImageSettings, block: int) -> None:
        self._settings = settings
        self._block = block

    def plan(self, item: ImageFile, request: MediaRequest) -> Plan:
        """Choose a size by the image's own, within the checkpoint's budget or the request's."""
        rows, columns = self._blocks(*item.size, request.max_tokens)
        return Plan(
            pieces=(Soft(self.token, rows * columns, (rows, columns)),),
            layout=PictureLayout(rows * self._block, columns * self._block),
        )

    def _blocks(self, width: int, height: int, most: int | None) -> tuple[int, int]:
        settings = self._settings
        rows, columns = fitted_blocks(
            width,
            height,
            block=self._block,
            least=settings.least_pixels,
            most=settings.most_pixels,
        )
        if most is None or rows * columns <= most:
            return rows, columns
        return capped_blocks(width, height, block=self._block, most=most)

    def prepare(self, item: ImageFile, plan: Plan) -> Prepared:
        """One frame, resized."""
        layout = plan.layout
        assert isinstance(layout, PictureLayout)
        picture = resized(item.pixels(), (layout.height, layout.width), self._settings.resample)
        caption = f"{layout.width} x {layout.height} pixels, {plan.count} soft tokens"
        return Prepared(
            frame_arrays(picture[None], self._settings), views=lambda: [(caption, picture)]
        )


def frame_arrays(frames: NDArray[np.uint8], settings: ImageSettings) -> Mapping[str, NDArray[Any]]:
    """What the tower reads: frames `[F, H, W, 3]`, and how their pixels are scaled."""
    return {"frames": frames, **settings.affine.arrays}
