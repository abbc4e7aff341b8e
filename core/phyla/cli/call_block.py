"""A tool call as people read it: its name, and an argument a line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from phyla.events import ToolCallError
    from phyla.messages import ToolCall

_INDENT = "  "
_WIDTH = 80


def call_header(name: str) -> str:
    """The line above a call's arguments."""
    return f"tool call: {name}"


def argument_lines(call: ToolCall) -> Iterator[str]:
    """A call's arguments, and what had to be repaired in the model's words."""
    for name, value in call.arguments.items():
        yield from _argument(name, value)
    for note in call.notes:
        yield f"{_INDENT}({note})"


def failure_lines(error: ToolCallError) -> Iterator[str]:
    """Why something is no call, and the model's words."""
    what = "tool call cut off" if error.incomplete else "tool call failed"
    yield f"{what}: {error.reason}"
    yield from (f"{_INDENT}{line}" for line in _shown(error.raw.strip("\n")))


def _argument(name: str, value: object) -> Iterator[str]:
    """`name: value` in JSON; a text of several lines, such as a program, as those lines."""
    if isinstance(value, str) and "\n" in value and _is_plain(value):
        yield f"{_INDENT}{name}:"
        yield from (f"{_INDENT * 2}{line}" for line in value.splitlines())
        return
    text = json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict | list) and len(_INDENT) + len(name) + len(text) > _WIDTH:
        text = json.dumps(value, ensure_ascii=False, indent=2)
    first, *others = text.split("\n")
    yield f"{_INDENT}{name}: {first}"
    yield from (f"{_INDENT}{line}" for line in others)


def _shown(text: str) -> list[str]:
    """A text's lines; with control characters, which would confuse a terminal, as JSON."""
    if _is_plain(text):
        return text.split("\n")
    return [json.dumps(text, ensure_ascii=False)]


def _is_plain(text: str) -> bool:
    return all(char.isprintable() or char in "\n\t" for char in text)
