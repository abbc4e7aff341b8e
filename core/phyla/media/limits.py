"""How much of an image, sound or video is read before it is refused. Knows no file format."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from phyla.errors import RequestError
from phyla.validation import shown


@dataclass(frozen=True, kw_only=True)
class MediaLimits:
    """What is refused, and what may be fetched.

    Attributes:
        max_bytes: the most bytes of one file.
        max_pixels: the most pixels of one image or frame; checked before it is decoded.
        max_audio_seconds: the longest sound.
        max_video_seconds: the longest video.
        max_frames: the most frames that a video may hold, whether or not they are asked for.
        files: whether paths and `file:` URLs are opened. A program that passes on what others send
            turns it off; texts then are data URLs, base64, or http(s) URLs where those are allowed.
        http: whether http and https URLs are fetched. Private addresses never are.
        http_seconds: for how many seconds one fetch may go on, from its first redirect to its last
            byte.
        hosts: if given, the only hosts that are fetched from, by their exact names.

    Raises:
        RequestError: a value is out of range; `field` names it.
    """

    max_bytes: int = 512 * 2**20
    max_pixels: int = 100_000_000
    max_audio_seconds: float = 3600.0
    max_video_seconds: float = 3600.0
    max_frames: int = 100_000
    files: bool = True
    http: bool = False
    http_seconds: float = 20.0
    hosts: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for field in ("max_bytes", "max_pixels", "max_frames"):
            value = getattr(self, field)
            if type(value) is not int or value < 1:
                raise _out_of_range(field, "an integer of at least 1", value)
        for field in ("max_audio_seconds", "max_video_seconds", "http_seconds"):
            value = getattr(self, field)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not (number and 0 < value < inf):
                raise _out_of_range(field, "a positive number of seconds", value)
        for field in ("files", "http"):
            if type(getattr(self, field)) is not bool:
                raise _out_of_range(field, "true or false", getattr(self, field))
        if self.hosts is None:
            return
        if not isinstance(self.hosts, tuple) or not all(
            isinstance(host, str) and host for host in self.hosts
        ):
            raise _out_of_range("hosts", "a tuple of host names or None", self.hosts)


def _out_of_range(field: str, expected: str, found: object) -> RequestError:
    return RequestError(
        f"{field} should be {expected}; found {shown(found)}.",
        field=field,
        expected=expected,
        found=found,
    )
