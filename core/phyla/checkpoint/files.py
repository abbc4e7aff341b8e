"""Opens a checkpoint's files, refusing those that are not there or stand for others.

Knows what an interrupted or a half-done download leaves behind: a file of no bytes, the text of a
Git LFS pointer, a link to a blob that was deleted. Knows nothing of what the files mean.
"""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any

from phyla.errors import CheckpointError

if TYPE_CHECKING:
    from io import BufferedReader
    from pathlib import Path

_POINTER = re.compile(rb"version https://\S+/spec/v\d+\n(?:.*\n)*?size (\d+)")
_POINTER_BYTES = 1024  # a pointer is shorter than this by its specification


def download_again(path: Path) -> str:
    """What to do about a broken file; a Hub cache holds a link, so the linked blob must go too."""
    if path.is_symlink():
        return f"Delete {path} and what it links to, {path.resolve()}, and download it again."
    return f"Delete {path} and download it again."


def open_file(path: Path) -> BufferedReader:
    """Open a file for its bytes, once it is known to hold any of its own.

    Raises:
        CheckpointError: the file is absent, unreadable, empty, or a Git LFS pointer.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError as error:
        found = f"a link to {path.resolve()}, which is gone" if path.is_symlink() else "no file"
        raise CheckpointError(
            f"{path.name} is missing: found {found}.",
            file=path.name,
            found=found,
            expected="a file",
            hint=f"Download it again into {path.parent}.",
        ) from error
    except OSError as error:
        raise CheckpointError(
            f"{path.name} cannot be read: {error.strerror}.",
            file=path.name,
            found=error.strerror,
            expected="a readable file",
            hint=f"Check what {path} is and who may read it.",
        ) from error
    try:
        _refuse_placeholder(path, file)
    except BaseException:
        file.close()
        raise
    return file


def _refuse_placeholder(path: Path, file: BufferedReader) -> None:
    size = os.fstat(file.fileno()).st_size
    if size == 0:
        raise CheckpointError(
            f"{path.name} is empty: found 0 bytes.",
            file=path.name,
            found=0,
            expected="more than 0 bytes",
            hint=download_again(path),
        )
    pointer = _POINTER.match(file.peek(_POINTER_BYTES)) if size < _POINTER_BYTES else None
    if pointer:
        expected = int(pointer[1])
        raise CheckpointError(
            f"{path.name} is a Git LFS pointer, not the file itself: found {size} bytes, "
            f"expected {expected}.",
            file=path.name,
            found=size,
            expected=expected,
            hint=f"Run `git lfs pull` in {path.parent}, or download the file itself.",
        )


def read_text(path: Path) -> str:
    """Read a UTF-8 text file.

    Raises:
        CheckpointError: as `open_file`, or the bytes are not UTF-8.
    """
    with open_file(path) as file:
        content = file.read()
    try:
        return content.decode("utf-8-sig")  # some editors put a byte-order mark first
    except UnicodeDecodeError as error:
        raise CheckpointError(
            f"{path.name} is not UTF-8 text: byte {error.start} cannot be decoded.",
            file=path.name,
            found=f"byte {content[error.start]:#04x} at {error.start}",
            expected="UTF-8 text",
            hint=download_again(path),
        ) from error


def read_json_value(path: Path) -> Any:
    """Read a JSON file, whatever it holds.

    Raises:
        CheckpointError: as `read_text`, or the text is not JSON; names line and column.
    """
    text = read_text(path)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise CheckpointError(
            f"{path.name} is not valid JSON: {error.msg} at {where}.",
            file=path.name,
            found=f"{error.msg} at {where}",
            expected="valid JSON",
            hint=f"Compare {path} with the published file, or download it again.",
        ) from error
    except (ValueError, RecursionError) as error:  # a number or a nesting beyond Python's limits
        raise CheckpointError(
            f"{path.name} cannot be read as JSON: {error}.",
            file=path.name,
            found=str(error),
            expected="valid JSON",
            hint=download_again(path),
        ) from error


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file that holds an object.

    Raises:
        CheckpointError: as `read_json_value`, or the value is not an object.
    """
    value = read_json_value(path)
    if not isinstance(value, dict):
        raise CheckpointError(
            f"{path.name} should hold a JSON object, found {type(value).__name__}.",
            file=path.name,
            found=type(value).__name__,
            expected="an object",
            hint=f"Compare {path} with the published file.",
        )
    return value


def read_json_if_present(path: Path) -> dict[str, Any]:
    """As `read_json`, but an absent file reads as an empty object."""
    return read_json(path) if path.is_file() or path.is_symlink() else {}
