"""How LFM2 writes tool calls: `<|tool_call_start|>[f(a=1), g(b="x")]<|tool_call_end|>`.

The JSON spelling, `[{"name": "f", "arguments": {...}}]` between the same markers, comes from one
template and, now and then, from the others' models; the format reads both.
"""

from __future__ import annotations

from phyla.tools.pythonic import PythonicFormat

TOOL_CALLS = PythonicFormat(name="lfm2", start="<|tool_call_start|>", end="<|tool_call_end|>")
"""Calls between the markers."""

BARE_TOOL_CALLS = PythonicFormat(name="lfm2-bare")
"""Calls of LFM2.5 models that leave the markers out: a list whose first name is a tool's."""
