"""Holds the installed plugins: imports them when they are needed, and asks them through the hooks.

Knows no family by name.
"""

from __future__ import annotations

import threading
from importlib import metadata
from typing import TYPE_CHECKING, cast

import phyla.hooks
from phyla import backend
from phyla.errors import PhylaError, PluginError, RequestError
from phyla.registry import selection
from phyla.registry.contract import check_family, check_hooks, plugin_manager
from phyla.registry.listing import FamilyRow, Listing
from phyla.registry.plugin import (
    FAMILIES_GROUP,
    PLUGINS_GROUP,
    BrokenPlugin,
    InstalledFamily,
    Plugin,
    from_entry_point,
    from_module,
    reason,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import typer

    from phyla.checkpoint import Checkpoint
    from phyla.family import Family
    from phyla.options import Options
    from phyla.registry.selection import Claim


def discover() -> Registry:
    """A registry of all installed plugins; reads the entry points and imports nothing."""
    return make_registry(
        entry
        for group in (FAMILIES_GROUP, PLUGINS_GROUP)
        for entry in metadata.entry_points(group=group)
    )


def make_registry(
    entries: Iterable[metadata.EntryPoint] = (), *, modules: Iterable[object] = ()
) -> Registry:
    """A registry of just these plugins: entry points, and modules that are imported already."""
    plugins = [*map(from_entry_point, entries), *map(from_module, modules)]
    # The order of entry points is that of the search path; nothing may depend on it.
    plugins.sort(key=lambda plugin: (plugin.group, plugin.entry_point, plugin.distribution))
    return Registry(plugins)


class Registry:
    """The installed plugins. Made by `discover` or `make_registry`; may be shared among threads.

    Every method that needs families raises PhylaError when MLX itself cannot be imported.
    """

    def __init__(self, plugins: Sequence[Plugin]) -> None:
        self._waiting = list(plugins)
        self._working: list[tuple[Plugin, object]] = []
        self._broken: list[BrokenPlugin] = []
        self._claims: list[Claim] | None = None
        self._manager = plugin_manager()
        self._lock = threading.RLock()

    @property
    def families(self) -> tuple[InstalledFamily, ...]:
        """Every family that a working plugin brings, one entry per architecture."""
        return tuple(plugin.installed(family) for plugin, family in self._all_claims())

    @property
    def broken(self) -> tuple[BrokenPlugin, ...]:
        """The plugins that failed so far: at import, or when a hook was called."""
        self._all_claims()
        return tuple(self._broken)

    def listing(self) -> Listing:
        """What `phyla families` shows; a plugin's failure or clash is a part of it, not raised."""
        by_plugin: dict[tuple[str, str, str], list[Claim]] = {}
        for plugin, family in self._all_claims():
            key = (family.name, plugin.distribution, plugin.entry_point)
            by_plugin.setdefault(key, []).append((plugin, family))
        return Listing(
            tuple(self._row(by_plugin[key]) for key in sorted(by_plugin)), tuple(self._broken)
        )

    def family_for(self, checkpoint: Checkpoint, name: str | None = None) -> Family:
        """The family that takes this checkpoint.

        Among the families whose `model_types` hold the checkpoint's, one that recognizes it wins
        over one that does not ask, and one that asks and does not recognize it is out. A checkpoint
        without a model type can only be recognized.

        Args:
            checkpoint: what to run.
            name: a family's name, to decide by hand.

        Raises:
            UnsupportedModelError: no family takes it, or several with the same right.
            PluginError: the family's name is claimed twice, its plugin does not work, or it failed
                while it looked at the checkpoint.
            RequestError: there is no family of that name.
        """
        claims = self._all_claims() if name is None else self._named(name)
        if name is None:
            won = selection.winners(claims, checkpoint)
        else:
            won = selection.chosen(claims, checkpoint)
        for claim in won:
            if clash := self._clash(*claim):
                raise clash
        if not won:
            raise selection.unclaimed(claims, checkpoint.model_type, name=name, broken=self._broken)
        if len(won) > 1:
            raise selection.tie(won, checkpoint.model_type)
        return won[0][1]

    def logits_processors(self, request: Options) -> tuple[phyla.hooks.LogitsProcessor, ...]:
        """The processors that a request runs through, in pluggy's order of calling.

        Raises:
            PluginError: a plugin failed; going on without it would change the reply in silence.
        """
        processors: list[phyla.hooks.LogitsProcessor] = []
        for plugin, module in self._implementing("phyla_logits_processors"):
            try:
                answers = self._ask(module, "phyla_logits_processors", request=request)
            except Exception as error:
                raise plugin.error(f"failed in phyla_logits_processors: {reason(error)}") from error
            for processor in answers:
                if not callable(processor):
                    raise plugin.error(f"gave {processor!r} for a logits processor")
                processors.append(cast("phyla.hooks.LogitsProcessor", processor))
        return tuple(processors)

    def observers(self) -> tuple[phyla.hooks.Observer, ...]:
        """Those who want to hear of an engine's requests; a plugin that fails becomes broken."""
        observers: list[phyla.hooks.Observer] = []
        for plugin, module in self._implementing("phyla_observers"):
            try:
                for observer in self._ask(module, "phyla_observers"):
                    if not isinstance(observer, phyla.hooks.Observer):
                        raise plugin.error(f"gave {observer!r} for an observer")
                    observers.append(observer)
            except Exception as error:  # noqa: BLE001 (a plugin may fail in any way)
                self._set_aside(plugin, module, error)
        return tuple(observers)

    def add_commands(self, app: typer.Typer) -> tuple[BrokenPlugin, ...]:
        """Let the plugins of the group `phyla.plugins` add commands; returns those that failed.

        Imports no family, so that the command line starts without MLX.
        """
        already = len(self._broken)
        for plugin, module in self._implementing("phyla_commands", families=False):
            try:
                self._ask(module, "phyla_commands", app=app)
            except (Exception, SystemExit) as error:  # noqa: BLE001 (as above)
                self._set_aside(plugin, module, error)
        return tuple(self._broken[already:])

    def _import(self, *, families: bool) -> None:
        """Import and register the plugins that still wait."""
        with self._lock:
            due = [p for p in self._waiting if families or p.group != FAMILIES_GROUP]
            if not due:
                return
            backend.prepare()  # a plugin may import mlx, and the fast BLAS has to come first
            for plugin in due:
                self._waiting.remove(plugin)
                try:
                    module = plugin.load()
                    if twin := self._manager.get_name(module):
                        raise plugin.error(f"names the same module as {twin}")
                    check_hooks(plugin, module)
                except (Exception, SystemExit) as error:  # noqa: BLE001 (as above)
                    self._broken.append(plugin.broken(error))
                else:
                    name = f"{plugin.entry_point!r} ({plugin.group}) of {plugin.label}"
                    self._manager.register(module, name)
                    self._working.append((plugin, module))

    def _all_claims(self) -> list[Claim]:
        with self._lock:
            if self._claims is None:
                _require_mlx()
                self._import(families=True)
                claims: list[Claim] = []
                for plugin, module in tuple(self._working):
                    try:
                        claims.extend((plugin, family) for family in self._provide(plugin, module))
                    except Exception as error:  # noqa: BLE001 (as above)
                        self._set_aside(plugin, module, error)
                self._claims = claims
            return self._claims

    def _provide(self, plugin: Plugin, module: object) -> list[Family]:
        answers = self._ask(module, "phyla_provide_families")
        if plugin.group == FAMILIES_GROUP and not answers:
            raise plugin.error(
                "brings no family", hint="Return at least one from phyla_provide_families."
            )
        return [check_family(plugin, answer) for answer in answers]

    def _implementing(self, hook: str, *, families: bool = True) -> list[tuple[Plugin, object]]:
        """The plugins that implement a hook, in pluggy's order of calling."""
        with self._lock:
            self._import(families=families)
            implementations = self._manager.subset_hook_caller(hook, []).get_hookimpls()
            order = {id(impl.plugin): place for place, impl in enumerate(reversed(implementations))}
            found = [pair for pair in self._working if id(pair[1]) in order]
            return sorted(found, key=lambda pair: order[id(pair[1])])

    def _ask(self, module: object, hook: str, **arguments: object) -> list[object]:
        """Call one plugin's hook, so that a failure has a name; what it gives, in one list."""
        others = [other for _, other in self._working if other is not module]
        caller = self._manager.subset_hook_caller(hook, others)
        answers = cast("list[Iterable[object]]", caller(**arguments))
        return [item for answer in answers for item in answer]

    def _set_aside(self, plugin: Plugin, module: object, error: BaseException) -> None:
        """Take a plugin that failed out of use."""
        with self._lock:
            self._manager.unregister(module)
            self._working.remove((plugin, module))
            self._broken.append(plugin.broken(error))

    def _named(self, name: str) -> list[Claim]:
        claims = self._all_claims()
        named = [claim for claim in claims if claim[1].name == name]
        for claim in named:
            if clash := self._clash(*claim):
                raise clash
        if named:
            return named
        for broken in self._broken:
            if broken.entry_point == name:
                raise PluginError(
                    f"Family {name!r} of {broken.distribution} {broken.version} does not work: "
                    f"{broken.reason}",
                    plugin=name,
                    distributions=(broken.distribution,),
                    hint="Reinstall or upgrade that package.",
                ) from broken.error
        names = sorted({family.name for _, family in claims})
        raise RequestError(
            f"There is no family {name!r}.",
            field="family",
            expected=tuple(names),
            found=name,
            hint=f"Installed: {', '.join(names) or 'none'}.",
        )

    def _row(self, claims: Sequence[Claim]) -> FamilyRow:
        plugin, family = claims[0]
        clash = self._clash(plugin, family)
        return FamilyRow(
            name=family.name,
            model_types=tuple(dict.fromkeys(t for _, each in claims for t in each.model_types)),
            distribution=plugin.distribution,
            version=plugin.version,
            clash=None if clash is None else clash.message,
        )

    def _clash(self, plugin: Plugin, family: Family) -> PluginError | None:
        """The error of using a family whose name, or whose entry point's name, is taken twice."""
        place = (plugin.group, plugin.entry_point)
        rivals = [
            other
            for other, theirs in self._all_claims()
            if other is not plugin
            and (theirs.name == family.name or (other.group, other.entry_point) == place)
        ]
        if not rivals:
            return None
        everyone = (plugin, *rivals)
        return PluginError(
            f"Family {family.name!r} is claimed more than once: "
            f"by {selection.join(sorted({each.label for each in everyone}))}.",
            plugin=plugin.entry_point,
            distributions=tuple(sorted({each.distribution for each in everyone})),
            hint="Uninstall all but one of them.",
        )


def _require_mlx() -> None:
    backend.prepare()
    try:
        import mlx.core  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ImportError as error:
        raise PhylaError(
            f"MLX cannot be imported: {error}.",
            field="mlx",
            hint="On Linux, install phyla[cpu] or phyla[cuda], which bring it.",
        ) from error
