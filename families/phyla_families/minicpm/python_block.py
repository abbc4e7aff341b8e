"""How MiniCPM 3 and 4 write tool calls: Python in a fence, one call to a line, between markers.

The markers are LFM2's, which writes a bracketed list between them.
"""

from __future__ import annotations

from phyla.tools.pythonic import PythonicFormat

PYTHON_BLOCK = PythonicFormat(
    name="minicpm-python",
    start="<|tool_call_start|>",
    end="<|tool_call_end|>",
    fence="python",
)
