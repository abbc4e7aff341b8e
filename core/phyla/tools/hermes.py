"""The Hermes format: `<tool_call>` around a JSON object with the call's name and arguments.

Qwen3, MiniCPM-V 4.5 and others write it. After NousResearch's Hermes function-calling format.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from phyla.tools.calls import CallWriter, StreamedBlock
from phyla.tools.json_call import call_json, read_calls
from phyla.tools.json_text import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from phyla.messages import Tool, ToolCall
    from phyla.tools.cursor import Cursor, Need
    from phyla.tools.format import BlockParser

OPEN, CLOSE = "<tool_call>", "</tool_call>"


@dataclass(frozen=True)
class HermesFormat:
    r"""`<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>`, one block per call."""

    name: str = "hermes"
    opens: tuple[str, ...] = (OPEN,)

    def block(self, tools: Sequence[Tool]) -> BlockParser:
        """A parser for the next block; the format carries types, so `tools` are not looked at."""
        return StreamedBlock(_read)

    def opening(self, tool: str | None) -> str:
        """The text to seed a reply with so that it must be a call, of `tool` if one is named."""
        if tool is None:
            return f'{OPEN}\n{{"name": "'
        return f'{OPEN}\n{{"name": {quoted(tool)}, "arguments":'

    def written(self, calls: Sequence[ToolCall]) -> str:
        """The calls as a model writes them."""
        return "\n".join(f"{OPEN}\n{call_json(call)}\n{CLOSE}" for call in calls)


def _read(cursor: Cursor, calls: CallWriter) -> Need[None]:
    yield from cursor.accept(OPEN)
    yield from read_calls(cursor, calls, end=CLOSE)
