"""How LFM2-VL reads a picture: what stands for it in a prompt, and the patches of its views."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from phyla.family import MediaReader, MediaRequest, Plan, Prepared, Soft
from phyla.media import resized
from phyla_families.lfm2_vl.tiling import Views, lay_out

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from phyla.media import ImageFile
    from phyla_families.lfm2_vl.image_settings import ImageSettings

_START, _END, _THUMBNAIL = "<|image_start|>", "<|image_end|>", "<|img_thumbnail|>"


class ImageReader(MediaReader["ImageFile"]):
    """Reads pictures of any size.

    Args:
        settings: the checkpoint's.
    """

    token = "<image>"

    def __init__(self, settings: ImageSettings) -> None:
        self._settings = settings

    def plan(self, item: ImageFile, request: MediaRequest) -> Plan:
        """Tiles row by row, each behind its mark, and the whole picture; all between two marks.

        Raises:
            ValueError: it is too long and narrow for the model, or for its budget.
        """
        width, height = item.size
        views = lay_out(width, height, self._settings, budget=request.max_tokens)
        pieces = [_START, *self._shown(views), _END]
        if not self._settings.use_image_special_tokens:
            pieces = [piece for piece in pieces if isinstance(piece, Soft)]
        return Plan(pieces=tuple(pieces), layout=views)

    def prepare(self, item: ImageFile, plan: Plan) -> Prepared:
        """Cut the views into patches.

        The arrays are `patches`, `[N, patch * patch * 3]` uint8, view after view and row by row;
        `shapes`, `[views, 2]`, the views' rows and columns of patches; and `scale` and `shift`, how
        the levels of each channel are scaled.
        """
        views, settings = plan.layout, self._settings
        assert isinstance(views, Views)
        size = settings.encoder_patch_size
        cut = [patchified(picture, size) for picture in self._pictures(item.pixels(), views)]
        shapes = [grid.shape[:2] for grid in cut]
        patches = [grid.reshape(-1, grid.shape[-1]) for grid in cut]

        def shown() -> Sequence[tuple[str, NDArray[np.uint8]]]:
            captions = self._captions(views)
            return [
                (caption, unpatchified(part.reshape(*shape, -1), size))
                for caption, part, shape in zip(captions, patches, shapes, strict=True)
            ]

        return Prepared(
            arrays={
                "patches": np.concatenate(patches),
                "shapes": np.array(shapes, np.int32),
                **settings.affine.arrays,
            },
            views=shown,
        )

    def _shown(self, views: Views) -> Iterator[str | Soft]:
        if views.tiles:
            side = self._settings.tile_size // self._settings.token_size
            for row, column in _grid(views):
                yield f"<|img_row_{row}_col_{column}|>"
                yield Soft(self.token, side * side, (side, side))
        if views.whole:
            if views.tiles:
                yield _THUMBNAIL
            step = self._settings.token_size
            rows, columns = (side // step for side in views.whole)
            yield Soft(self.token, rows * columns, (rows, columns))

    def _pictures(self, picture: NDArray[np.uint8], views: Views) -> Iterator[NDArray[np.uint8]]:
        """The views in order; tiles and the whole are both resized from the picture itself."""
        side, resample = self._settings.tile_size, self._settings.resample
        if views.tiles:
            tiled = resized(picture, (views.rows * side, views.columns * side), resample)
            for row, column in _grid(views):
                yield tiled[(row - 1) * side : row * side, (column - 1) * side : column * side]
        if views.whole:
            yield resized(picture, views.whole, resample)

    def _captions(self, views: Views) -> list[str]:
        tiles = [f"row {row}, column {column}" for row, column in _grid(views)] * bool(views.tiles)
        return [*tiles, *["the whole picture"] * bool(views.whole)]


def _grid(views: Views) -> list[tuple[int, int]]:
    """Row and column of each tile, from 1."""
    return [
        (row, column) for row in range(1, views.rows + 1) for column in range(1, views.columns + 1)
    ]


def patchified(pixels: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """`[H, W, 3]` to `[H / size, W / size, size * size * 3]`, patches by rows, colours last."""
    height, width, channels = pixels.shape
    grid = pixels.reshape(height // size, size, width // size, size, channels)
    return grid.swapaxes(1, 2).reshape(height // size, width // size, -1)


def unpatchified(grid: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """The pixels `[H, W, 3]` of `patchified`."""
    rows, columns, _ = grid.shape
    pixels = grid.reshape(rows, columns, size, size, 3).swapaxes(1, 2)
    return pixels.reshape(rows * size, columns * size, 3)
