from __future__ import annotations

from pathlib import Path

from phyla.testing import Conformance, read_tiny, subjects

TABLES = ("tiny.json", "named_tiny.json")

subject = subjects(
    {
        name: tiny
        for table in TABLES
        for name, tiny in read_tiny(Path(__file__).with_name(table)).items()
    }
)


class TestConformance(Conformance):
    pass
