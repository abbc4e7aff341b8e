from __future__ import annotations

from pathlib import Path

from phyla.testing import Conformance, read_tiny, subjects

subject = subjects(read_tiny(Path(__file__).with_name("tiny.json")))


class TestConformance(Conformance):
    pass
