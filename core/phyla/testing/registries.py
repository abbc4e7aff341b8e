"""Registries that know what a test wants and nothing that happens to be installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phyla.hooks import hookimpl
from phyla.registry import make_registry

if TYPE_CHECKING:
    from collections.abc import Iterable

    from phyla.family import Family
    from phyla.registry import Registry


def registry_of(*families: Family) -> Registry:
    """A registry that knows these families and no other."""

    class Plugin:
        @hookimpl
        def phyla_provide_families(self) -> Iterable[Family]:
            return families

    return make_registry(modules=[Plugin()])
