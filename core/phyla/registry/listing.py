"""What is installed, in rows, for people to read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from phyla.registry.plugin import BrokenPlugin


@dataclass(frozen=True, kw_only=True)
class FamilyRow:
    """A family of one plugin.

    Attributes:
        name: the family's name.
        model_types: those of all its architectures.
        distribution: the package that brings it.
        version: that package's version.
        clash: why it cannot be used although it works, or None: another plugin has its name.
    """

    name: str
    model_types: tuple[str, ...]
    distribution: str
    version: str
    clash: str | None = None


@dataclass(frozen=True)
class Listing:
    """Everything that is installed: the families by name, then the plugins that failed."""

    families: tuple[FamilyRow, ...]
    broken: tuple[BrokenPlugin, ...]
