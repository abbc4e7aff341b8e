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
from phyla.tools.function_xml import FunctionXmlFormat
from phyla.tools.hermes import HermesFormat

__all__ = [
    "ArgumentsDelta",
    "BlockParser",
    "CallEvent",
    "CallFailed",
    "CallParsed",
    "CallStarted",
    "FunctionXmlFormat",
    "HermesFormat",
    "ToolFormat",
]
