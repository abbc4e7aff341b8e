"""Says what pydantic found wrong in the words of somebody who never heard of pydantic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phyla.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydantic_core import ErrorDetails

_MOST = 200  # characters of a value that an error shows

_WORDS = {
    "a valid tuple": "a list",
    "a valid list": "a list",
    "a valid dictionary or instance of": "a mapping or a",
    "a valid dictionary or object to extract fields from": "a mapping",
    "a valid dictionary": "a mapping",
    "a valid string": "text",
    "a valid integer, unable to parse string as an integer": "an integer",
    "a valid integer, got a number with a fractional part": "an integer",
    "a valid integer": "an integer",
    "a valid number, unable to parse string as a number": "a number",
    "a valid number": "a number",
    "a valid boolean, unable to interpret input": "true or false",
    "a valid boolean": "true or false",
    "String should have": "text should have",
}


def expected(error: ErrorDetails) -> str:
    """What the value should be, to go on after "should be"."""
    text = error["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    for theirs, ours in _WORDS.items():
        if text.startswith(theirs):
            return ours + text[len(theirs) :]
    return text


def complaint(error: ErrorDetails) -> str:
    """What is wrong with the field, to go on after its name."""
    if error["type"] == "missing":
        return "is missing."
    if error["type"] == "extra_forbidden":
        return f"is unknown; found {shown(error['input'])}."
    text = error["msg"]
    if text.startswith("Input should be "):
        text = f"should be {expected(error)}"
    elif text.startswith(("String should ", "Tuple should ", "Dictionary should ")):
        text = text.partition(" ")[2]
    else:
        text = f"is wrong: {text.removeprefix('Value error, ')}"
    return f"{text}; found {shown(error['input'])}."


def place(start: str, parts: Iterable[int | str]) -> str:
    """Where a value is, as one would write it: `messages[0].content[1].type`."""
    text = start
    for part in parts:
        if part == "[key]":  # pydantic's mark that it means the key before, not its value
            continue
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def shown(value: object) -> str:
    """A value's `repr`, cut when it is long."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 (a value may be nested too deeply, or have a broken repr)
        return f"a {type(value).__name__}"
    return text if len(text) <= _MOST else f"{text[:_MOST]}…"


def check_text(field: str, found: object) -> None:
    """Check that an argument is text.

    Raises:
        RequestError: it is not.
    """
    if not isinstance(found, str):
        raise RequestError(
            f"{field} should be a string; found {shown(found)}.",
            field=field,
            expected="a string",
            found=found,
        )
