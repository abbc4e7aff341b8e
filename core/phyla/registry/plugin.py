"""A plugin as it is installed: where it comes from, and how its failures are told."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING

from phyla.errors import PhylaError, PluginError

if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib import metadata

    from phyla.family import Family

FAMILIES_GROUP = "phyla.families"
PLUGINS_GROUP = "phyla.plugins"


@dataclass(frozen=True, kw_only=True)
class InstalledFamily:
    """A family, the entry point that brought it, and the distribution which declares that."""

    family: Family
    entry_point: str
    distribution: str
    version: str


@dataclass(frozen=True, kw_only=True)
class BrokenPlugin:
    """A plugin that could not be imported, or broke its contract, and how it failed."""

    entry_point: str
    distribution: str
    version: str
    error: BaseException

    @property
    def reason(self) -> str:
        """What went wrong, in a line."""
        return reason(self.error)


def reason(error: BaseException) -> str:
    """An error in a line; those of Phyla speak for themselves, others are named by their type."""
    text = " ".join(str(error).split())
    if isinstance(error, PhylaError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


@dataclass(frozen=True, kw_only=True)
class Plugin:
    """A plugin before it is imported; `load` imports it."""

    group: str
    entry_point: str
    distribution: str
    version: str
    load: Callable[[], object]

    @property
    def label(self) -> str:
        """The distribution and its version."""
        return f"{self.distribution} {self.version}".strip()

    def broken(self, error: BaseException) -> BrokenPlugin:
        """This plugin with the error it failed with."""
        return BrokenPlugin(
            entry_point=self.entry_point,
            distribution=self.distribution,
            version=self.version,
            error=error,
        )

    def installed(self, family: Family) -> InstalledFamily:
        """A family of this plugin, with its origin."""
        return InstalledFamily(
            family=family,
            entry_point=self.entry_point,
            distribution=self.distribution,
            version=self.version,
        )

    def error(self, predicate: str, *, hint: str | None = None) -> PluginError:
        """An error whose text begins with this plugin's name and goes on with `predicate`."""
        return PluginError(
            f"Plugin {self.entry_point!r} of {self.label} {predicate.rstrip('.')}.",
            plugin=self.entry_point,
            distributions=(self.distribution,),
            hint=hint,
        )


def from_entry_point(entry: metadata.EntryPoint) -> Plugin:
    """The plugin that an installed distribution declares."""
    return Plugin(
        group=entry.group,
        entry_point=entry.name,
        distribution=entry.dist.name if entry.dist else "an unknown distribution",
        version=entry.dist.version if entry.dist else "",
        load=entry.load,
    )


def from_module(module: object) -> Plugin:
    """A plugin that is at hand already; its top package stands for the distribution."""
    name = module.__name__ if inspect.ismodule(module) else type(module).__name__
    return Plugin(
        group=PLUGINS_GROUP,
        entry_point=name,
        distribution=name.partition(".")[0],
        version="",
        load=lambda: module,
    )
