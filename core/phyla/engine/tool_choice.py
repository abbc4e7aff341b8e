"""Makes a reply a tool call: which words to put into the model's mouth."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phyla.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from phyla.family import Dialect
    from phyla.messages import Tool


def call_opening(dialect: Dialect, tools: Sequence[Tool], choice: str) -> str:
    """The opening of a call that the reply has to begin with; empty for `auto` and `none`.

    Raises:
        RequestError: the choice is not possible: there is no such tool, or the model has no way to
            call one.
    """
    if choice in ("auto", "none"):
        return ""
    names = [tool.name for tool in tools]
    if choice != "required" and choice not in names:
        raise RequestError(
            f"tool_choice names {choice!r}, and there is no such tool.",
            field="tool_choice",
            expected=("auto", "none", "required", *names),
            found=choice,
            hint="Use auto, none, required, or the name of a tool that you pass.",
        )
    if not tools:
        raise RequestError(
            "tool_choice is 'required', and there are no tools.",
            field="tool_choice",
            found=choice,
            hint="Pass tools.",
        )
    if dialect.tools is None:
        raise RequestError(
            f"A model of dialect {dialect.name!r} has no way to call tools.",
            field="tool_choice",
            found=choice,
            hint="Leave tool_choice out, or use another model.",
        )
    only = names[0] if len(names) == 1 else None
    return dialect.tools.opening(only if choice == "required" else choice)
