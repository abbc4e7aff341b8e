"""Makes what a file says fit to print: a terminal must not be steered by a checkpoint's texts."""

from __future__ import annotations

import re
import unicodedata

# Control and format characters, among them those that turn the direction of writing, and what
# breaks a line; surrogates cannot be printed at all.
_UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
_SUSPECT = re.compile(r"[^ -~]")


def visible(text: str) -> str:
    r"""The text with every character that is none to look at written out, as `\x1b` or `\u202e`."""
    return _SUSPECT.sub(_written_out, text)


def _written_out(match: re.Match[str]) -> str:
    character = match[0]
    if unicodedata.category(character) not in _UNSEEN:
        return character
    return character.encode("unicode_escape").decode("ascii")
