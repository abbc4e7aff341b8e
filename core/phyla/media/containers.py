"""Opens containers of sound and video with PyAV, and decodes what can be decoded of a stream.

The libraries behind PyAV know playlists and other files that name further files or addresses. They
are given our own file object instead of a name, and a door to further files that is shut.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from phyla.errors import MediaError
from phyla.media.sniff import looks_like, media_type

if TYPE_CHECKING:
    from collections.abc import Iterator

    from av.container import InputContainer
    from av.frame import Frame
    from av.stream import Stream

    from phyla.media.item import Item
    from phyla.media.sources import Blob

# They hold no media of their own, or make pictures of any text.
_REFUSED = {
    *("hls", "applehttp", "concat", "concatf", "dash", "imf", "sdp", "rtsp", "rtp", "ffmetadata"),
    *("tty", "ansi", "bin", "xbin", "adf", "idf"),
}
# So many packets in a row that cannot be read are taken for the end.
_MOST_FAILURES = 64


@contextlib.contextmanager
def opened(blob: Blob, item: Item, *, headers_only: bool = False) -> Iterator[InputContainer]:
    """Open a container; whatever PyAV raises inside becomes a MediaError.

    With `headers_only` no codec is opened, and streams are what the container says of them.

    Raises:
        MediaError: it is no container that can be read.
    """
    av = item.library("av")
    options = {
        "max_pixels": str(item.limits.max_pixels),
        "protocol_whitelist": "none",  # a session description opens ports by itself
    }
    if headers_only:
        options["codec_whitelist"] = "none"
    with blob.open(item) as file:
        head = file.read(2048)
        file.seek(0)
        try:
            container = av.open(
                file,
                "r",
                metadata_errors="replace",
                options=options,
                io_open=_shut,
            )
        except Exception as error:
            raise _not_read(head, item, error) from error
        with container:
            if _REFUSED & set(container.format.name.split(",")):
                raise _not_read(head, item, None)
            try:
                yield container
            except MediaError:
                raise
            except Exception as error:  # broken files make it raise anything
                raise item.error(
                    f"it cannot be decoded: {_reason(error)}.",
                    "Check that it plays elsewhere.",
                ) from error


def _shut(url: str, flags: int, options: dict[str, Any]) -> object:
    raise PermissionError("a media file must not name other files")


def _reason(error: Exception) -> str:
    """Why, in the library's words, without the numbers and names that it puts around them."""
    from av.error import FFmpegError

    known = error.strerror if isinstance(error, OSError | FFmpegError) else None
    return (known or str(error)).rstrip(".") or type(error).__name__


def _not_read(head: bytes, item: Item, error: Exception | None) -> MediaError:
    because = f" ({_reason(error)})" if error is not None else ""
    known = media_type(head)
    if known:
        return item.error(
            f"it begins like {known}, but cannot be read{because}.",
            "It seems to be truncated or broken: check that it plays elsewhere.",
        )
    return item.error(
        f"it is no {item.kind} that can be read{because}; it looks like {looks_like(head)}.",
        "Check the file, or what a server sent instead of it.",
    )


def decoded(container: InputContainer, stream: Stream) -> Iterator[Frame]:
    """The frames of a stream that decode, in the order of presentation; broken ones are left out."""
    from av.error import EOFError as EndError
    from av.error import FFmpegError

    failures = 0
    packets = container.demux(stream)
    while failures < _MOST_FAILURES:
        try:
            packet = next(packets, None)
        except EndError:
            packet = None
        except FFmpegError:
            # The generator is spent, but what comes after the broken place may be good.
            failures += 1
            packets = container.demux(stream)
            continue
        if packet is None:
            break
        failures = 0
        yield from _frames(packet)
    # Empty by now, unless reading stopped before the end.
    with contextlib.suppress(FFmpegError):
        yield from stream.decode(None)  # type: ignore[attr-defined]


def _frames(packet: Any) -> Iterator[Frame]:
    from av.error import FFmpegError

    try:
        frames = packet.decode()
    except FFmpegError:
        return
    for frame in frames:
        if not frame.is_corrupt:
            yield frame
