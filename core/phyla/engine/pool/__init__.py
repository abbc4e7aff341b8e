"""The prompt cache: what was computed for earlier requests, found again by what was fed.

Knows nothing of models, layers or MLX: it works on the `Layers` protocol, and decides which of
them to keep, to hand over, to copy and to drop. It runs on the engine's thread; nothing is locked.
"""

from __future__ import annotations

from phyla.engine.pool.entry import Layers
from phyla.engine.pool.key import Key
from phyla.engine.pool.lease import Lease
from phyla.engine.pool.pins import Pin
from phyla.engine.pool.pool import Pool
from phyla.engine.pool.snapshots import Snapshot

__all__ = ["Key", "Layers", "Lease", "Pin", "Pool", "Snapshot"]
