"""Phyla runs language and multimodal models with MLX; every model family is a plugin.

    import phyla

    engine = phyla.load("demo")
    print(engine.chat("What is the capital of France?").text)

Importing this module loads neither MLX nor any media library; names are resolved on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from phyla.errors import (
    BusyError,
    CancelledError,
    CheckpointError,
    ConfigError,
    ContextOverflowError,
    EmptyInputError,
    MediaError,
    MemoryLimitError,
    PhylaError,
    PluginError,
    RequestError,
    TemplateError,
    UnsupportedModalityError,
    UnsupportedModelError,
)

if TYPE_CHECKING:
    from phyla.caching import Breakpoint, CacheExplanation, CacheLimits, CacheStats
    from phyla.engine.engine import Engine, load
    from phyla.engine.session import Session
    from phyla.engine.stream import Stream
    from phyla.events import (
        Event,
        Finished,
        ReasoningDelta,
        Reply,
        TextDelta,
        Timings,
        TokenLogprob,
        ToolCallDelta,
        ToolCallError,
        ToolCallFailed,
        ToolCallFinished,
        ToolCallStarted,
        Usage,
    )
    from phyla.kv_quantization import KVQuantization, Quantized
    from phyla.messages import Message, Reasoning, Text, Tool, ToolCall, ToolResult
    from phyla.options import Options
    from phyla.prompt import Prompt

__version__ = "0.1.0"

_HOME = {
    "Engine": "phyla.engine.engine",
    "load": "phyla.engine.engine",
    "Session": "phyla.engine.session",
    "Stream": "phyla.engine.stream",
    **dict.fromkeys(
        ("Breakpoint", "CacheExplanation", "CacheLimits", "CacheStats"), "phyla.caching"
    ),
    **dict.fromkeys(("KVQuantization", "Quantized"), "phyla.kv_quantization"),
    "Options": "phyla.options",
    "Prompt": "phyla.prompt",
    **dict.fromkeys(
        (
            "Event",
            "Finished",
            "ReasoningDelta",
            "Reply",
            "TextDelta",
            "Timings",
            "TokenLogprob",
            "ToolCallDelta",
            "ToolCallError",
            "ToolCallFailed",
            "ToolCallFinished",
            "ToolCallStarted",
            "Usage",
        ),
        "phyla.events",
    ),
    **dict.fromkeys(
        ("Message", "Reasoning", "Text", "Tool", "ToolCall", "ToolResult"), "phyla.messages"
    ),
}

__all__ = [
    "Breakpoint",
    "BusyError",
    "CacheExplanation",
    "CacheLimits",
    "CacheStats",
    "CancelledError",
    "CheckpointError",
    "ConfigError",
    "ContextOverflowError",
    "EmptyInputError",
    "Engine",
    "Event",
    "Finished",
    "KVQuantization",
    "MediaError",
    "MemoryLimitError",
    "Message",
    "Options",
    "PhylaError",
    "PluginError",
    "Prompt",
    "Quantized",
    "Reasoning",
    "ReasoningDelta",
    "Reply",
    "RequestError",
    "Session",
    "Stream",
    "TemplateError",
    "Text",
    "TextDelta",
    "Timings",
    "TokenLogprob",
    "Tool",
    "ToolCall",
    "ToolCallDelta",
    "ToolCallError",
    "ToolCallFailed",
    "ToolCallFinished",
    "ToolCallStarted",
    "ToolResult",
    "UnsupportedModalityError",
    "UnsupportedModelError",
    "Usage",
    "load",
]


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'phyla' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
