"""How much of a large set of cases a test run takes: all of them, or an even choice.

With the environment variable `PHYLA_THOROUGH` set, suites try every case; otherwise as many as an
ordinary run has time for.
"""

from __future__ import annotations

import os
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

_Case = TypeVar("_Case")


def some(cases: Iterable[_Case], *, count: int, most: int) -> Iterable[_Case]:
    """All of `count` cases in a thorough run, else at most about `most` of them, evenly spread."""
    step = 1 if os.environ.get("PHYLA_THOROUGH") else max(1, -(-count // most))
    return islice(cases, 0, None, step)
