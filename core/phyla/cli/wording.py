"""Puts the advice of errors, which is for programmers, into the words of the command line."""

from __future__ import annotations

import re

# The options of commands for arguments of Python; what has no option is left out.
_WORDS = (
    (r'\bfamily="([^"\s]+)"', r"--family \1"),
    (r",? or raise MediaLimits\.\w+(?: and [\w.]*\w)?", ""),
    (r" \(MediaLimits\.\w+\)", ""),
    (r"see `engine\.capabilities`", "`phyla inspect` shows what one reads"),
    (r"load the model with max_context=(\d+)", r"use --max-context \1"),
    (r"\bmax_context can be raised", "--max-context can be raised"),
    (r"more than its max_tokens, (\d+)", r"more than --max-media-tokens \1"),
    (r"Raise max_tokens, or pass", "Raise --max-media-tokens, or pass"),
    (r"a smaller max_tokens or max_frames", "a smaller --max-media-tokens or --max-frames"),
    (r", lower max_tokens, or load the model with a larger memory_limit", " or lower --max-tokens"),
)


def for_shell(text: str) -> str:
    """The text of an error as it is told on the command line."""
    for pattern, replacement in _WORDS:
        text = re.sub(pattern, replacement, text)
    return text
