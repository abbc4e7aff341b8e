"""From what a user types for an image, sound or video to a block of a message.

What can be wrong with a file's name, and fetching it, is dealt with here and once: before a model is
loaded, and not again in each turn of a conversation.
"""

from __future__ import annotations

import base64
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import assert_never

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


def read_media(given: Sequence[tuple[Modality, str]], *, allow_http: bool) -> list[Medium]:
    """The blocks for what was given, in its order.

    Raises:
        MediaError: as `read_medium`.
    """
    return [
        read_medium(modality, text, index=index, allow_http=allow_http)
        for index, (modality, text) in enumerate(given)
    ]


def read_medium(modality: Modality, text: str, *, index: int = 0, allow_http: bool) -> Medium:
    """The block for a path or a URL. Its source is text, so that a conversation can be saved.

    Args:
        modality: what it is taken for.
        text: a path, in which `~` is the home folder, or a URL.
        index: which item of the request it is, for errors.
        allow_http: whether http and https URLs are fetched.

    Raises:
        MediaError: there is no such file, it cannot be fetched, it is no image where one is wanted,
            or a library that reads it is missing.
    """
    item = Item(modality, index, MediaLimits(http=allow_http))
    if not allow_http and text.lower().startswith(("http://", "https://")):
        raise item.error(
            f"fetching URLs is off; found {shown(text)}.", "Download it, or add --allow-http."
        )
    blob = find(text if _URL.match(text) else _path(text), item)
    if blob.path is None:
        source = "data:;base64," + base64.b64encode(blob.read(item)).decode("ascii")
    else:
        source = str(blob.path.absolute())
    match modality:
        case "image":
            open_image(source, index=index, limits=item.limits)  # reads the header
            return Image(source=source)
        case "audio":
            item.library("av")
            return Audio(source=source)
        case "video":
            item.library("av")
            return Video(source=source)
        case _:
            assert_never(modality)


def short_name(text: str) -> str:
    """A path or URL as people call it."""
    if text.startswith("data:"):
        return text.partition(",")[0]
    return text.rstrip("/").rpartition("/")[2] or text


def _path(text: str) -> Path:
    path = Path(text)
    with suppress(RuntimeError):  # `~name` of nobody's
        path = path.expanduser()
    return path
