"""Tool-call formats that several families share, and the contract for more."""

from phyla.tools.format import (
    ArgumentsDelta,
    BlockParser,
    CallEvent,
    CallFailed,
    CallParsed,
    CallStarted,
    ToolFormat,
)

__all__ = [
    "ArgumentsDelta",
    "BlockParser",
    "CallEvent",
    "CallFailed",
    "CallParsed",
    "CallStarted",
    "ToolFormat",
]
