"""Knows where Phyla keeps files that it can fetch again. Model files of the Hub are not there."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def cache_folder() -> Path:
    """Where fetched files are kept, whether or not it exists yet.

    `PHYLA_CACHE` if set; else `phyla` within `XDG_CACHE_HOME`, `~/Library/Caches` on macOS, or
    `~/.cache`.
    """
    if chosen := os.environ.get("PHYLA_CACHE"):
        return Path(chosen).expanduser()
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared).expanduser() / "phyla"
    home = Path.home()
    caches = home / "Library" / "Caches" if sys.platform == "darwin" else home / ".cache"
    return caches / "phyla"
