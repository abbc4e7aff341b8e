"""Shows what a model will see of images, audio and videos: fields, and a picture in a file."""

from __future__ import annotations

import json as json_module
import re
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from phyla.cli.file_names import short_name
from phyla.cli.json_file import os_reason
from phyla.cli.tables import print_fields
from phyla.errors import RequestError
from phyla.media import contact_sheet

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from phyla.cli.look import Seen, SeenItem


def sheet_file(save: Path | None, first: str, *, force: bool) -> Path:
    """Where the picture goes.

    Args:
        save: what the user says; None takes the current folder and the first item's name, with a
            number if there is such a file already.
        first: the first item, a path or URL.
        force: whether to write over a file that is there.

    Raises:
        RequestError: it is no place for a new file.
    """
    if save is None:
        stem = re.sub(r"[^\w.-]+", "_", Path(short_name(first)).stem).strip(".") or "media"
        names = (Path(f"{stem[:100]}.seen{number}.png") for number in _numbers())
        save = next(name for name in names if force or not name.exists())
    try:
        file = save.expanduser()
    except RuntimeError:  # `~name` of nobody's
        file = save
    if file.exists() and (file.is_dir() or not force):
        over = "" if file.is_dir() else ", or write over it with --force"
        hint = f"Choose another with --save{over}."
        raise RequestError(f"{file} exists already.", field="save", found=str(file), hint=hint)
    if not file.parent.is_dir():
        raise RequestError(f"There is no folder {file.parent}.", field="save", found=str(file))
    return file


def _numbers() -> Iterator[str]:
    yield ""
    yield from (f"-{number}" for number in count(2))


def show_seen(seen: Seen, file: Path, *, json: bool) -> None:
    """Print what was found, and write the picture if there is anything to see.

    Raises:
        RequestError: the file cannot be written.
    """
    if seen.views:
        captions, views = zip(*seen.views, strict=True)
        _write(views, captions, file)
    if json:
        listed = [item.model_dump() for item in seen.items]
        sheet = str(file) if seen.views else None
        typer.echo(json_module.dumps({"media": listed, "sheet": sheet}, ensure_ascii=False))
        return
    fields: list[tuple[str, str]] = []
    for item in seen.items:
        fields += _fields(item)
    fields.append(("saved", str(file) if seen.views else "nothing: there is nothing to look at"))
    print_fields(fields)


def _write(views: Sequence[NDArray[np.uint8]], captions: Sequence[str], file: Path) -> None:
    try:
        contact_sheet(views, captions).save(file, format="PNG")
    except OSError as error:
        raise RequestError(
            f"{file} cannot be written: {os_reason(error)}.", field="save", found=str(file)
        ) from error


def _fields(item: SeenItem) -> list[tuple[str, str]]:
    return [
        (item.modality, item.source),
        ("size", item.found),
        ("soft tokens", f"{item.soft_tokens}, of {item.prompt_tokens} in the prompt"),
        ("in the prompt", item.expansion),
    ]
