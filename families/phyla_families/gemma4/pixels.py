"""Pictures as rows of pixels' patches, shared by the vision tower and the encoder-free model."""

from __future__ import annotations

import mlx.core as mx


def patches(pixels: mx.array, side: int) -> mx.array:
    """Cut pictures into squares.

    Args:
        pixels: `[pictures, H, W, 3]`; H and W are multiples of `side`.
        side: of a square.

    Returns:
        `[pictures * H/side * W/side, side * side * 3]`: row by row over each picture, and within a
        square row by row, the three channels of a pixel side by side.
    """
    count, height, width, channels = pixels.shape
    rows, columns = height // side, width // side
    cut = pixels.reshape(count, rows, side, columns, side, channels)
    return cut.swapaxes(2, 3).reshape(count * rows * columns, side * side * channels)


def columns_and_rows(count: int, rows: int, columns: int) -> tuple[mx.array, mx.array]:
    """Where the patches of `count` pictures stand: the column and the row of each, `[N]` int32."""
    index = mx.arange(count * rows * columns, dtype=mx.int32)
    return index % columns, index // columns % rows


def working_type(stored: mx.Dtype) -> mx.Dtype:
    """What to compute with: not float16, in which these towers pass its largest number."""
    return mx.float32 if stored == mx.float16 else stored
