"""Finds the bytes of an image, sound or video: in memory, a file, a URL or base64 text.

Text is taken for the first of these that fits: a URL (`http:`, `https:`, `file:`, `data:`), the path
of an existing file, base64 text. What is none of them is an error.
"""

from __future__ import annotations

import base64
import binascii
import io
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import unquote, unquote_to_bytes, urlsplit
from urllib.request import url2pathname

from phyla.media.sniff import looks_like, media_type
from phyla.validation import shown

if TYPE_CHECKING:
    from phyla.media.item import Item

# Two letters at least, so that a drive of Windows (`C:\\...`) is no scheme.
_SCHEME = re.compile(r"\s*([a-zA-Z][a-zA-Z0-9+.-]+):")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]+={0,2}")
_LONGEST_PATH = 4096


@dataclass(frozen=True)
class Blob:
    """The bytes of a file, in memory or on disk.

    Attributes:
        data: the bytes, or None when they are on disk.
        path: the file, when they are.
    """

    data: bytes | None = None
    path: Path | None = None

    def open(self, item: Item) -> BinaryIO:
        """Open it for reading, from its start.

        Raises:
            MediaError: the file is gone, is no ordinary file, or is too large.
        """
        if self.data is not None:
            return io.BytesIO(self.data)
        assert self.path is not None
        return open_file(self.path, item)

    def read(self, item: Item) -> bytes:
        """All its bytes.

        Raises:
            MediaError: as for `open`.
        """
        if self.data is not None:
            return self.data
        with self.open(item) as file:
            try:
                # A file may grow, and those of /proc say that they are empty.
                data = file.read(item.limits.max_bytes + 1)
            except OSError as error:
                raise _unreadable(item, self.path, error) from error
        item.check_bytes(len(data))
        return data

    def looks_like(self, item: Item) -> str:
        """What its first bytes look like, in words."""
        with self.open(item) as file:
            return looks_like(file.read(2048))


def open_file(path: Path, item: Item) -> BinaryIO:
    """Open an ordinary file, and nothing else: a pipe would make us wait, a device has no end.

    Raises:
        MediaError: it is missing, no ordinary file, unreadable or too large.
    """
    try:
        # Without O_NONBLOCK, opening a pipe that nobody writes into waits for ever.
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        file = os.fdopen(os.open(path, flags), "rb")
    except FileNotFoundError as error:
        raise item.error(f"there is no file {str(path)!r}.", "Check the path.") from error
    except (OSError, ValueError) as error:
        raise _unreadable(item, path, error) from error
    try:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise item.error(f"{str(path)!r} is no ordinary file.", "Pass the path of a file.")
        item.check_bytes(status.st_size)
    except BaseException:
        file.close()
        raise
    return file


def find(source: object, item: Item) -> Blob:
    """The bytes that a source stands for. Those of a path stay on disk.

    Raises:
        MediaError: it is no source, or cannot be reached; the text says what to pass instead.
    """
    if isinstance(source, bytes | bytearray | memoryview):
        length = source.nbytes if isinstance(source, memoryview) else len(source)
        item.check_bytes(length)
        return Blob(bytes(source))
    if isinstance(source, str):
        return _text(source, item)
    if isinstance(source, os.PathLike):
        path = os.fspath(source)
        return _path(Path(os.fsdecode(path)), item)
    raise item.error(
        f"a {type(source).__module__}.{type(source).__qualname__} is no source of {item.kind}.",
        "Pass bytes, a path, a URL, base64 text or an array.",
    )


def _text(text: str, item: Item) -> Blob:
    scheme = _SCHEME.match(text)
    name = scheme.group(1).lower() if scheme else None
    if name in ("http", "https"):
        from phyla.media.http import fetch

        return Blob(fetch(text.strip(), item))
    if name == "data":
        return Blob(_data_url(text.strip(), item))
    if name == "file":
        return _path(_file_url(text.strip(), item), item)
    if scheme and text[scheme.end() :].startswith("//"):
        raise item.error(
            f"URLs that begin with {name}: are not read.",
            "Pass an http, https, file or data URL, a path or bytes.",
        )
    if item.limits.files and _exists(text):
        return _path(Path(text), item)
    data = _plain_base64(text, item)
    if data is not None:
        return Blob(data)
    if not item.limits.files:
        raise item.error(
            f"{shown(text)} is no base64 text of an image, sound or video, and files are not read "
            "here.",
            "Pass the bytes, or a data: URL.",
        )
    raise item.error(
        f"{shown(text)} is neither the path of a file nor base64 text of an image, sound or video.",
        "Check the path, or pass the bytes themselves.",
    )


def _exists(text: str) -> bool:
    if not text or len(text) > _LONGEST_PATH:
        return False
    try:
        return os.path.lexists(text)
    except (OSError, ValueError):  # too long for this file system, or a null character
        return False


def _path(path: Path, item: Item) -> Blob:
    if not item.limits.files:
        # The same words whether it is there or not.
        raise item.error("files are not read here.", "Pass the bytes, or a data: URL.")
    open_file(path, item).close()
    return Blob(path=path)


def _file_url(url: str, item: Item) -> Path:
    try:
        parts = urlsplit(url)
        host = parts.netloc.lower()
    except ValueError as error:
        raise item.error(f"{shown(url)} is no URL: {error}.", "Pass a path.") from error
    if host not in ("", "localhost"):
        raise item.error(
            f"{shown(url)} names a file of another machine, {host!r}.", "Pass a path of this one."
        )
    # Not cut at `?` and `#`, which a file's name may hold when somebody forgot to quote them.
    rest = url.partition(":")[2]
    if rest.startswith("//"):
        rest = rest[2 + len(host) :]
    path = url2pathname(rest) if os.name == "nt" else unquote(rest)
    if "\0" in path or not path:
        raise item.error(f"{shown(url)} names no file.", "Pass a path.")
    return Path(path)


def _data_url(url: str, item: Item) -> bytes:
    head, comma, body = url.partition(",")
    if not comma:
        raise item.error(
            "the data: URL has no comma, after which its content begins.",
            "Write data:image/png;base64,<base64 text>.",
        )
    item.check_bytes(len(body) * 3 // 4 - 3 if "base64" in head.lower() else len(body) // 3)
    encoded = head.lower().replace(" ", "").endswith(";base64")
    raw = unquote_to_bytes(body)
    if not encoded:
        item.check_bytes(len(raw))
        return raw
    data = _decode(raw.decode("latin-1"))
    if data is None:
        raise item.error("the data: URL's content is no base64.", "Encode the bytes once more.")
    item.check_bytes(len(data))
    return data


def _plain_base64(text: str, item: Item) -> bytes | None:
    """The bytes of base64 text: if they begin like media, or if no path can be so long."""
    # A start of whole groups is enough to tell, and spares decoding a long text for nothing.
    start = _decode("".join(text[:4096].split())[:2048])
    if start is None or not (media_type(start) or len(text) > _LONGEST_PATH):
        return None
    item.check_bytes(len(text) * 3 // 4 - len(text) // 32 - 3)
    data = _decode(text)
    if data is not None:
        item.check_bytes(len(data))
    return data


def _decode(text: str) -> bytes | None:
    """Decode base64 in either alphabet, with or without its padding, spaces and line ends."""
    text = "".join(text.split())
    if not _BASE64.fullmatch(text):
        return None
    text = text.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except binascii.Error:
        return None


def _unreadable(item: Item, path: Path | None, error: Exception) -> Exception:
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return item.error(f"{str(path)!r} cannot be read: {reason}.", "Check the path.")
