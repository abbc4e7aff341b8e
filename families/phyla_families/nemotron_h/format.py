"""The tool calls of Nemotron Nano v2: one JSON list of all calls, between `<TOOLCALL>` marks.

Nemotron 3 writes functions and parameters as tags instead: `phyla.tools.FunctionXmlFormat`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from phyla.tools.calls import CallWriter, StreamedBlock
from phyla.tools.json_call import read_calls
from phyla.tools.json_text import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from phyla.messages import Tool
    from phyla.tools.cursor import Cursor, Need
    from phyla.tools.format import BlockParser

OPEN, CLOSE = "<TOOLCALL>", "</TOOLCALL>"


@dataclass(frozen=True)
class ToolCallListFormat:
    """`<TOOLCALL>[{"name": "f", "arguments": {"a": 1}}, ...]</TOOLCALL>`, one block per reply."""

    name: str = "nemotron-list"
    opens: tuple[str, ...] = (OPEN,)

    def block(self, tools: Sequence[Tool]) -> BlockParser:
        return StreamedBlock(_read)

    def opening(self, tool: str | None) -> str:
        if tool is None:
            return f'{OPEN}[{{"name": "'
        return f'{OPEN}[{{"name": {quoted(tool)}, "arguments":'


def _read(cursor: Cursor, calls: CallWriter) -> Need[None]:
    yield from cursor.accept(OPEN)
    yield from read_calls(cursor, calls, end=CLOSE)
