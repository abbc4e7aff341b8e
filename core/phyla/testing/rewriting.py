"""Has pytest show the values in the kit's assertions, as it does in a test module's own."""

from __future__ import annotations

import pytest

# Before they are imported; afterwards it is too late.
pytest.register_assert_rewrite(
    *(
        f"phyla.testing.{name}"
        for name in ("blocks", "invariants", "media_parity", "memory", "parity", "replies", "sight")
    )
)
