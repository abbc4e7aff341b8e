"""Draws pictures to look at: a sheet of what a model is shown, and a spectrogram."""

from __future__ import annotations

from math import ceil, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from phyla.errors import RequestError
from phyla.media.item import Item
from phyla.media.limits import MediaLimits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from PIL.Image import Image

_LARGEST = 4096  # pixels of the canvas, each way
_GAP = 4
_LINE = 14  # pixels of height for a caption


def contact_sheet(views: Sequence[NDArray[np.uint8]], captions: Sequence[str] = ()) -> Image:
    """See `phyla.media.contact_sheet`."""
    pil = Item("image", 0, MediaLimits()).library("PIL.Image")
    from PIL import ImageFont

    if len(captions) > len(views):
        raise RequestError(
            f"There are {len(captions)} captions for {len(views)} pictures.", field="captions"
        )
    for place, view in enumerate(views):
        if view.ndim != 3 or view.shape[-1] != 3 or 0 in view.shape or view.dtype != np.uint8:
            raise RequestError(
                f"views[{place}] should be [H, W, 3] of uint8; found {view.shape} of {view.dtype}.",
                field=f"views[{place}]",
            )
    columns = max(1, ceil(sqrt(len(views))))
    rows = max(1, ceil(len(views) / columns))
    line = _LINE if captions else 0
    # A sheet of very many pictures has no room for words.
    if rows * (line + _GAP) > _LARGEST // 2:
        line = 0
    gap = _GAP if max(rows, columns) * _GAP <= _LARGEST // 2 else 0
    widths = _largest([view.shape[1] for view in views], columns, by_column=True)
    heights = _largest([view.shape[0] for view in views], columns, by_column=False)
    room = _LARGEST - gap * (columns + 1), _LARGEST - gap * (rows + 1) - line * rows
    scale = min(1.0, room[0] / max(1, sum(widths)), room[1] / max(1, sum(heights)))
    font = ImageFont.load_default() if line else None
    labels = [_written(caption, font) for caption in captions] if line else []
    widths = _with_room([max(1, int(width * scale)) for width in widths], labels, room[0])
    heights = [max(1, int(height * scale)) for height in heights]

    lefts = _starts(widths, gap)
    tops = _starts(heights, gap + line, gap)
    size = lefts[-1], tops[-1]
    canvas = pil.new("RGB", (min(size[0], _LARGEST), min(size[1], _LARGEST)), "white")
    for place, view in enumerate(views):
        row, column = divmod(place, columns)
        picture = pil.fromarray(np.ascontiguousarray(view))
        if scale < 1:
            picture = picture.resize(tuple(max(1, int(side * scale)) for side in picture.size))
        canvas.paste(picture, (lefts[column], tops[row]))
        if place < len(labels):
            label = labels[place].crop((0, 0, min(labels[place].width, widths[column]), line))
            canvas.paste(label, (lefts[column], tops[row] + heights[row]))
    return canvas


def _starts(lengths: list[int], between: int, first: int | None = None) -> list[int]:
    """Where each of the cells begins, and where the last one's margin ends."""
    starts = [between if first is None else first]
    for length in lengths:
        starts.append(starts[-1] + length + between)
    return starts


def _largest(lengths: list[int], columns: int, *, by_column: bool) -> list[int]:
    cells: dict[int, int] = {}
    for place, length in enumerate(lengths):
        cell = place % columns if by_column else place // columns
        cells[cell] = max(cells.get(cell, 1), length)
    return [cells[cell] for cell in sorted(cells)] or [1]


def _with_room(widths: list[int], labels: Sequence[Image], room: int) -> list[int]:
    """The columns as wide as their captions; as they are if the sheet has not so much room."""
    wanted = list(widths)
    for place, label in enumerate(labels):
        column = place % len(widths)
        wanted[column] = max(wanted[column], label.width)
    return wanted if sum(wanted) <= room else widths


def _written(caption: str, font: Any) -> Image:
    """A caption, as long as it is."""
    from PIL import Image, ImageDraw

    text = " ".join(caption.split())
    measure = ImageDraw.Draw(Image.new("RGB", (1, 1)))
    try:
        right = measure.textbbox((0, 0), text, font=font)[2]
    except UnicodeEncodeError:  # without FreeType the font has Latin letters only
        text = text.encode("latin-1", "replace").decode("latin-1")
        right = measure.textbbox((0, 0), text, font=font)[2]
    label = Image.new("RGB", (min(max(1, ceil(right)), _LARGEST), _LINE), "white")
    ImageDraw.Draw(label).text((0, 0), text, fill="black", font=font)
    return label


def mel_picture(mel: NDArray[np.floating]) -> NDArray[np.uint8]:
    """See `phyla.media.mel_picture`."""
    if mel.ndim != 2:
        raise RequestError(f"A spectrogram is [frames, bins]; found {mel.shape}.", field="mel")
    values = mel.astype(np.float64)
    finite = values[np.isfinite(values)]
    low, high = (finite.min(), finite.max()) if finite.size else (0.0, 0.0)
    # The logarithm of silence is minus infinity: black.
    values = np.clip(np.nan_to_num(values, nan=low, posinf=high, neginf=low), low, high)
    span = high - low or 1.0
    grey = np.round((values - low) / span * 255).astype(np.uint8)
    return np.repeat(grey.T[::-1, :, None], 3, axis=-1)
