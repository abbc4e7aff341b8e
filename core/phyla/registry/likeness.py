"""Which known model types are truly like an unknown one. Knows names, and nothing behind them."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_MOST = 4
# From so many characters on, a name with one letter off, or two, is taken for a slip.
_ONE_OFF, _TWO_OFF = 6, 10


def alike(name: str, known: Iterable[str]) -> list[str]:
    """The known names that share a stem with `name` or are a slip away from it, likeliest first.

    A stem is what stands before the first `_`, `-` or `.`: `qwen3_foo` is like `qwen3_moe`. A slip
    is a letter too many, too few or another one, never a digit: `qwen2` is no misspelt `qwen3`.
    """
    close = [each for each in known if _stem(each) == _stem(name) or _is_slip(name, each)]
    return difflib.get_close_matches(name, close, n=_MOST, cutoff=0.0)


def _stem(name: str) -> str:
    return re.split(r"[_.-]", name.casefold(), maxsplit=1)[0]


def _is_slip(name: str, known: str) -> bool:
    """Whether somebody who meant `known` may have written `name`."""
    left, right = name.casefold(), known.casefold()
    if re.findall(r"\d+", left) != re.findall(r"\d+", right):
        return False
    shorter = min(len(left), len(right))
    allowed = 2 if shorter >= _TWO_OFF else 1 if shorter >= _ONE_OFF else 0
    return _edits(left, right) <= allowed


def _edits(left: str, right: str) -> int:
    """How many letters are to be put in, taken out or replaced (Levenshtein's distance)."""
    above = list(range(len(right) + 1))
    for row, letter in enumerate(left, 1):
        line = [row]
        for column, other in enumerate(right, 1):
            changed = above[column - 1] + (letter != other)
            line.append(min(changed, above[column] + 1, line[-1] + 1))
        above = line
    return above[-1]
