"""Reads JSON that a user keeps in a file, and says where it is broken."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from phyla.errors import RequestError

if TYPE_CHECKING:
    from pathlib import Path


def read_json_list(file: Path, *, of: str) -> list[object]:
    """Read a file that holds a JSON list.

    Args:
        file: where; `~` is the home folder.
        of: what the list should hold, for the error.

    Raises:
        RequestError: the file cannot be read, is no JSON, or holds something else.
    """
    try:
        content = json.loads(file.expanduser().read_text(encoding="utf-8-sig"))
    except (OSError, RuntimeError) as error:  # RuntimeError: `~name` of nobody's
        raise RequestError(
            f"{file} cannot be read: {os_reason(error)}.", field="file", found=str(file)
        ) from error
    except json.JSONDecodeError as error:
        raise RequestError(
            f"{file} is no JSON: {error.msg} at line {error.lineno}, column {error.colno}.",
            field="file",
            found=str(file),
            expected=f"a JSON list of {of}",
        ) from error
    except (UnicodeDecodeError, RecursionError) as error:
        raise RequestError(
            f"{file} is no JSON in UTF-8.",
            field="file",
            found=str(file),
            expected=f"a JSON list of {of}",
        ) from error
    if not isinstance(content, list):
        raise RequestError(
            f"{file} should hold a JSON list of {of}, found {_KINDS[type(content)]}.",
            field="file",
            found=str(file),
            expected=f"a JSON list of {of}",
            hint="Put it in brackets: [...]." if isinstance(content, dict) else None,
        )
    return content


_KINDS = {
    dict: "an object",
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "true or false",
    type(None): "null",
}


def os_reason(error: OSError | RuntimeError) -> str:
    """Why a file could not be opened, in the system's words and without its name."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
