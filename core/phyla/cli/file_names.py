"""Tells of a file by its name where an error counts the items of a request."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from phyla.cli.kept import Kept
from phyla.errors import MediaError, UnsupportedModalityError
from phyla.validation import shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from phyla.messages import Medium


@contextmanager
def file_names(names: Sequence[str | None]) -> Iterator[None]:
    """Inside, errors about an item begin with the name of its file; `names` are those of all items.

    An item without a name, such as a data: URL, is told by its place.
    """
    try:
        yield
    except MediaError as error:
        message = _named(error.message, error.index, names)
        raise MediaError(message, index=error.index, hint=error.hint) from error
    except UnsupportedModalityError as error:
        message = _named(error.message, error.index, names)
        raise UnsupportedModalityError(
            message, modality=error.modality, index=error.index, hint=error.hint
        ) from error


def typed_name(text: str) -> str | None:
    """The name of what was typed: itself, if that is no data: URL."""
    return None if text.lower().startswith("data:") else text


def short_name(text: str) -> str:
    """A path or URL as people call it."""
    if text.lower().startswith("data:"):
        return text.partition(",")[0]
    return text.rstrip("/").rpartition("/")[2] or text


def name_of(block: Medium) -> str | None:
    """The short name of what a block of the command line holds; None of a data: URL."""
    source = block.source
    if isinstance(source, Kept):
        return source.name
    text = str(source)
    return None if typed_name(text) is None else short_name(text)


def _named(message: str, index: int, names: Sequence[str | None]) -> str:
    name = names[index] if index < len(names) else None
    if name is None:
        return message
    said = message.partition(": ")[2]
    if repr(name) in said:  # "there is no file 'photo.jpg'"
        return said[:1].upper() + said[1:]
    return re.sub(r"^media\[\d+\]", lambda _: name if len(name) < 100 else shown(name), message)
