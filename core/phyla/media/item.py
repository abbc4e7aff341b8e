"""One image, sound or video of a request: its place, its limits, and how its errors are worded."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from phyla.errors import MediaError

if TYPE_CHECKING:
    from types import ModuleType

    from phyla.media.limits import MediaLimits

Kind = Literal["image", "audio", "video"]

_PACKAGES = {"PIL": "pillow"}


@dataclass(frozen=True)
class Item:
    """What every reader of media is told besides the source.

    Attributes:
        kind: what the caller takes it for.
        index: which item of the request it is, counted from 0.
        limits: what is refused.
        part: which part of the item it is, in words, when the item has several.
    """

    kind: Kind
    index: int
    limits: MediaLimits
    part: str = ""

    def error(self, problem: str, hint: str | None = None) -> MediaError:
        """The error to raise; `problem` is a sentence that goes on after the item's name."""
        name = f"{self.kind}, {self.part}" if self.part else self.kind
        return MediaError(f"media[{self.index}] ({name}): {problem}", index=self.index, hint=hint)

    def library(self, name: str) -> ModuleType:
        """Import a media library, which is an extra of Phyla.

        Raises:
            MediaError: it is not installed.
        """
        try:
            return importlib.import_module(name)
        except ImportError as error:
            package = _PACKAGES.get(name.partition(".")[0], name.partition(".")[0])
            raise self.error(
                f"reading it needs {package}, which cannot be imported ({error}).",
                "Install phyla[media].",
            ) from error

    def check_bytes(self, count: int) -> None:
        """Refuse a file by its size.

        Raises:
            MediaError: it has more bytes than the limits allow.
        """
        if count > self.limits.max_bytes:
            raise self.error(
                f"the file has {count:,} bytes or more; the limit is {self.limits.max_bytes:,}.",
                "Make it smaller, or raise MediaLimits.max_bytes.",
            )

    def check_pixels(self, width: int, height: int) -> None:
        """Refuse a picture by its size.

        Raises:
            MediaError: it is empty, or has more pixels than the limits allow.
        """
        if width < 1 or height < 1:
            raise self.error(f"the picture is empty, {width}x{height} pixels.", "Leave it out.")
        if width * height > self.limits.max_pixels:
            raise self.error(
                f"the picture has {width}x{height} pixels; the limit is "
                f"{self.limits.max_pixels:,} in all.",
                "Scale it down, or raise MediaLimits.max_pixels.",
            )
