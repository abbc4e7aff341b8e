"""From what a user types for an image, sound or video to a block of a message.

What can be wrong with a file's name, and fetching it, is dealt with here and once: before a model is
loaded, and not again in each turn of a conversation.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from phyla.cli.file_names import file_names, short_name, typed_name
from phyla.cli.kept import Kept, data_url
from phyla.cli.media_wishes import Wishes
from phyla.media import MediaLimits, open_image
from phyla.media.item import Item
from phyla.media.sources import find
from phyla.messages import Audio, Image, Video
from phyla.validation import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from phyla.messages import Medium
    from phyla.modality import Modality

_URL = re.compile(r"data:|[a-zA-Z][a-zA-Z0-9+.-]+://")
_BLOCKS: dict[Modality, type[Medium]] = {"image": Image, "audio": Audio, "video": Video}


def read_media(
    given: Sequence[tuple[Modality, str]],
    *,
    allow_http: bool,
    wishes: Wishes | None = None,
    keep: bool = False,
) -> list[Medium]:
    """The blocks for what was given, in its order.

    Raises:
        MediaError: as `read_medium`.
    """
    return [
        read_medium(modality, text, allow_http=allow_http, wishes=wishes, keep=keep, index=index)
        for index, (modality, text) in enumerate(given)
    ]


def read_medium(
    modality: Modality,
    text: str,
    *,
    allow_http: bool,
    wishes: Wishes | None = None,
    keep: bool = False,
    index: int = 0,
) -> Medium:
    """The block for a path or a URL.

    Args:
        modality: what it is taken for.
        text: a path, in which `~` is the home folder, or a URL.
        allow_http: whether http and https URLs are fetched.
        wishes: what the block is to say beside its source.
        keep: whether to read the content of a file now, as a conversation needs it; otherwise the
            source is a path, and what was fetched a data: URL.
        index: which item of the request it is, for errors about one that has no name.

    Raises:
        MediaError: there is no such file, it cannot be fetched, it is no image where one is wanted,
            or a library that reads it is missing. The text begins with the file's name.
    """
    with file_names([None] * index + [typed_name(text)]):
        item = Item(modality, index, MediaLimits(http=allow_http))
        source = _source(text if _URL.match(text) else _path(text), item, keep=keep)
        if modality == "image":
            open_image(source, index=index, limits=item.limits)  # reads the header
        else:
            item.library("av")
    return (wishes or Wishes()).over(_BLOCKS[modality](source=source))


def kept(block: Medium, *, allow_http: bool, index: int) -> Medium:
    """A block that was saved, with the content of its file.

    Raises:
        MediaError: the file is gone, or cannot be fetched.
    """
    text = str(block.source)
    with file_names([None] * index + [typed_name(text)]):
        item = Item(block.type, index, MediaLimits(http=allow_http))
        return block.model_copy(update={"source": _source(text, item, keep=True)})


def _source(given: str | Path, item: Item, *, keep: bool) -> str | Kept:
    text = str(given)
    if not item.limits.http and text.lower().startswith(("http://", "https://")):
        raise item.error(
            f"fetching URLs is off; found {shown(text)}.", "Download it, or add --allow-http."
        )
    blob = find(given, item)
    if blob.path is None:
        content = blob.read(item)
        if keep and typed_name(text) is not None:
            return Kept.of(content, name=short_name(text), path=None)
        return data_url(content)
    path = blob.path.absolute()
    return Kept.of(blob.read(item), name=path.name, path=path) if keep else str(path)


def _path(text: str) -> Path:
    path = Path(text)
    with suppress(RuntimeError):  # `~name` of nobody's
        path = path.expanduser()
    return path
