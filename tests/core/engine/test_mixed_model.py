"""The engine on models that mix layers of every cache kind."""

from __future__ import annotations

from phyla.testing import Conformance, Tiny, subjects
from phyla.testing.mixed import mixed, mixed_registry

LAYERS = {
    "attention": "fmfm",
    "a window": "wmfm",
    "a window whose keys are shared": "wsmfs",
    "a recurrence": "rmfm",
    "recurrences only": "rmr",
    "everything": "rwfsm",
}

subject = subjects(
    {name: Tiny(name, mixed(letters)) for name, letters in LAYERS.items()},
    registry=mixed_registry(),
)


class TestConformance(Conformance):
    pass
