"""What the Tab key makes of a line that ends in a file's name."""

from __future__ import annotations

import os
from pathlib import Path

_COMMANDS = ("/image", "/audio", "/video", "/save", "/load")


def complete_path(line: str) -> list[str]:
    """The lines that a command with the beginning of a path may become, in order.

    Blanks in names stay as they are: the rest of a line is one path. Folders end in a slash, and
    hidden files are shown when asked for by their dot.
    """
    command, blank, typed = line.partition(" ")
    if command not in _COMMANDS or not blank:
        return []
    typed = typed.lstrip()
    folder, slash, start = typed.rpartition("/")
    try:
        names = sorted(os.listdir(Path(folder + slash).expanduser()))  # noqa: PTH208 (names only)
    except (OSError, RuntimeError):  # RuntimeError: `~name` of nobody's
        return []
    lines: list[str] = []
    for name in names:
        if name.startswith(start) and (start.startswith(".") or not name.startswith(".")):
            path = f"{folder}{slash}{name}"
            end = "/" if Path(path).expanduser().is_dir() else ""
            lines.append(f"{command} {path}{end}")
    return lines
