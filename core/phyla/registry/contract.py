"""What a plugin must keep to: real hooks, rightly marked, and families whose fields hold."""

from __future__ import annotations

import difflib
import inspect
from typing import TYPE_CHECKING, cast

import pluggy

import phyla.hooks

if TYPE_CHECKING:
    from phyla.family import Family
    from phyla.registry.plugin import Plugin

_PREFIX = "phyla_"


def plugin_manager() -> pluggy.PluginManager:
    """A new pluggy manager that knows the hooks of `phyla.hooks` and no plugin."""
    manager = pluggy.PluginManager(phyla.hooks.PROJECT)
    manager.add_hookspecs(phyla.hooks)
    return manager


def check_hooks(plugin: Plugin, module: object) -> None:
    """Refuse a hook that does not exist, has wrong arguments, or lacks its marker.

    pluggy alone passes over an unmarked function in silence, so a misspelt or unmarked hook would
    simply never be called.

    Raises:
        PluginError: names the function.
    """
    try:
        hash(module)
    except TypeError as error:
        raise plugin.error("is no module, nor another object that pluggy can hash") from error
    trial = plugin_manager()
    hooks = [name for name in dir(phyla.hooks) if name.startswith(_PREFIX)]
    for name in dir(module):
        value: object = getattr(module, name)
        marker = trial.parse_hookimpl_opts(module, name)
        if not inspect.isroutine(value) or not (marker or name.startswith(_PREFIX)):
            continue
        hook = (marker and marker["specname"]) or name
        if hook not in hooks:
            close = difflib.get_close_matches(hook, hooks, n=1)
            hint = f"Did you mean {close[0]}?" if close else f"The hooks are {', '.join(hooks)}."
            raise plugin.error(f"implements {hook!r}, which is no hook", hint=hint)
        if not marker:
            raise plugin.error(f"has a function {name!r} without its marker", hint="Add @hookimpl.")
    try:
        trial.register(module)
        trial.check_pending()
    except pluggy.PluginValidationError as error:
        text = " ".join(str(error).split())
        raise plugin.error(f"implements a hook wrongly: {text}") from error


def check_family(plugin: Plugin, value: object) -> Family:
    """Refuse what is no family, or a family with a field of a wrong type.

    Raises:
        PluginError: names the family, the field, expected and found.
    """
    from phyla.family import Family

    if not isinstance(value, Family):
        raise plugin.error(f"gave {value!r} for a family", hint="Return Family values.")
    fields: tuple[tuple[str, object, bool, str], ...] = (
        ("name", value.name, _is_text(value.name), "a text"),
        ("model_types", value.model_types, _are_texts(value.model_types), "a tuple of texts"),
        ("config", value.config, _is_config(value.config), "a subclass of FamilyConfig"),
        ("model", value.model, callable(value.model), "a function"),
        ("weights", value.weights, callable(value.weights), "a function"),
        (
            "recognizes",
            value.recognizes,
            value.recognizes is None or callable(value.recognizes),
            "a function or None",
        ),
        ("dialect", value.dialect, callable(value.dialect), "a function"),
    )
    for field, found, good, expected in fields:
        if not good:
            raise plugin.error(
                f"brings family {value.name!r}, whose {field} should be {expected}, found {found!r}"
            )
    return value


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _are_texts(value: object) -> bool:
    if not isinstance(value, tuple):
        return False
    items = cast("tuple[object, ...]", value)
    return items != () and all(map(_is_text, items))


def _is_config(value: object) -> bool:
    from phyla.family import FamilyConfig

    return isinstance(value, type) and issubclass(value, FamilyConfig)
