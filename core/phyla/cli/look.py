"""What a model will see of images, audio and videos, found without its weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict

from phyla.family import Soft
from phyla.media import AudioClip, ImageFile, MediaLimits, VideoClip

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from phyla.checkpoint import Checkpoint
    from phyla.engine.media import MediaItem
    from phyla.family import Family, MediaReader
    from phyla.messages import Medium

_SHOWN = 7  # pieces of an expansion


class SeenItem(BaseModel):
    """An item as a model reads it.

    Attributes:
        modality: what it is.
        source: its path, or the beginning of its data: URL.
        found: size and duration, in words.
        soft_tokens: the places that its features take in the prompt.
        prompt_tokens: all tokens that it takes, with what stands around it.
        expansion: what stands in the prompt, in short form.
        views: the captions of the pictures of it, in the order of the sheet.
    """

    model_config = ConfigDict(frozen=True)

    modality: Literal["image", "audio", "video"]
    source: str
    found: str
    soft_tokens: int
    prompt_tokens: int
    expansion: str
    views: tuple[str, ...]


@dataclass(frozen=True)
class Seen:
    """What was found of all items, and the pictures of them, in one order."""

    items: tuple[SeenItem, ...]
    views: tuple[tuple[str, NDArray[np.uint8]], ...]


def look(
    checkpoint: Checkpoint, family: Family, blocks: Sequence[Medium], *, dtype: str | None = None
) -> Seen:
    """Open, plan and preprocess items as a request with them would. No weight is read.

    Raises:
        UnsupportedModalityError: the model cannot read one of them.
        MediaError: one cannot be read.
        PhylaError: what loading the model would raise before it reads weights.
    """
    from phyla.engine.loading import plan
    from phyla.engine.media import MediaDesk

    blueprint = plan(checkpoint, family, dtype=dtype)
    desk = MediaDesk(blueprint.media, blueprint.tokenizer, MediaLimits())
    items: list[SeenItem] = []
    views: list[tuple[str, NDArray[np.uint8]]] = []
    for block, item in zip(blocks, desk.open_blocks(blocks), strict=True):
        reader = blueprint.media.get(item.modality)
        assert reader is not None, "the desk has opened it"
        expanded = desk.expand(desk.wrapped(item), [item])
        number = f"{item.index + 1}: " if len(blocks) > 1 else ""
        seen = [(f"{number}{caption}", view) for caption, view in item.views]
        views += seen
        items.append(
            SeenItem(
                modality=item.modality,
                source=_source(block.source),
                found=_found(item),
                soft_tokens=item.plan.count,
                prompt_tokens=len(expanded.ids),
                expansion=_expansion(item, reader),
                views=tuple(caption for caption, _ in seen),
            )
        )
    return Seen(tuple(items), tuple(views))


def _source(text: str) -> str:
    return text.partition(",")[0] if text.startswith("data:") else text


def _found(item: MediaItem) -> str:
    match item.opened:
        case ImageFile(size=(width, height)):
            return f"{width} x {height} pixels"
        case AudioClip(seconds=seconds, rate=rate):
            return f"{seconds:.1f} s at {rate} Hz"
        case VideoClip(size=(width, height), seconds=seconds, count=count):
            return f"{width} x {height} pixels, {count} frames in {seconds:.1f} s"
        case other:
            raise AssertionError(f"phyla.media opened a {type(other).__name__}")


def _expansion(item: MediaItem, reader: MediaReader[Any]) -> str:
    pieces = [piece for piece in (reader.before, *item.plan.pieces, reader.after) if piece]
    words = [_piece(piece) for piece in pieces]
    if len(words) > _SHOWN:
        left = len(words) - _SHOWN + 1
        words = [*words[: _SHOWN - 3], f"... {left} more ...", *words[-2:]]
    return " ".join(words)


def _piece(piece: str | Soft) -> str:
    if not isinstance(piece, Soft):
        return piece if piece.split() == [piece] else repr(piece)
    grid = "" if piece.grid is None else " ({} x {})".format(*piece.grid)
    return f"{piece.token} x {piece.count}{grid}"
