"""Small buffers for the tests of stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from phyla.engine import caches

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module", autouse=True)
def small_buffers() -> Iterator[None]:
    """Buffers so small that a few tokens make them grow and slide."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(caches, "BLOCK", 8)
        patch.setattr(caches, "MARGIN", 3)
        yield
