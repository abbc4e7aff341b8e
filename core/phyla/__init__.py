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
    from phyla.media import MediaLimits
    from phyla.messages import (
        Audio,
        Image,
        Message,
        Reasoning,
        Text,
        Tool,
        ToolCall,
        ToolResult,
        Video,
    )
    from phyla.modality import Capabilities
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
    "MediaLimits": "phyla.media",
    "Capabilities": "phyla.modality",
    **dict.fromkeys(
        (
            "Audio",
            "Image",
            "Message",
            "Reasoning",
            "Text",
            "Tool",
            "ToolCall",
            "ToolResult",
            "Video",
        ),
        "phyla.messages",
    ),
}

__all__ = [
    "Audio",
    "Breakpoint",
    "BusyError",
    "CacheExplanation",
    "CacheLimits",
    "CacheStats",
    "CancelledError",
    "Capabilities",
    "CheckpointError",
    "ConfigError",
    "ContextOverflowError",
    "EmptyInputError",
    "Engine",
    "Event",
    "Finished",
    "Image",
    "KVQuantization",
    "MediaError",
    "MediaLimits",
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
    "Video",
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
