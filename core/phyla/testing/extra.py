"""Says what is missing where the `test` extra is not installed."""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("pytest") is None:
    raise ImportError("phyla.testing needs pytest: install phyla[test].", name="pytest")
