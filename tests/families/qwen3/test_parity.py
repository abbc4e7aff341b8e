from __future__ import annotations

from pathlib import Path

import pytest

from phyla.testing import read_tiny
from phyla.testing.parity import Parity, pairs

pytestmark = [pytest.mark.parity, pytest.mark.usefixtures("one_torch_thread")]

TABLE = read_tiny(Path(__file__).with_name("tiny.json"))

pair = pairs(TABLE)


class TestParity(Parity):
    pass
