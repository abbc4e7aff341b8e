"""Every hook is specified so that a plugin author can rely on it."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import phyla.hooks
from phyla.registry.contract import plugin_manager

HOOKS = sorted(name for name in dir(phyla.hooks) if name.startswith("phyla_"))
PLUGINS_PAGE = Path(__file__).parents[2] / "docs" / "plugins.md"


def test_every_specified_hook_is_known_to_the_manager():
    hooks = vars(plugin_manager().hook)
    assert {name for name in hooks if name.startswith("phyla_")} == set(HOOKS)


@pytest.mark.parametrize("name", HOOKS)
def test_a_hook_has_typed_arguments(name):
    signature = inspect.signature(getattr(phyla.hooks, name))
    annotations = [parameter.annotation for parameter in signature.parameters.values()]
    assert inspect.Parameter.empty not in [*annotations, signature.return_annotation]


@pytest.mark.parametrize("name", HOOKS)
def test_a_hook_says_when_it_fires(name):
    assert (inspect.getdoc(getattr(phyla.hooks, name)) or "").startswith("Fires ")


def test_each_hook_has_a_heading_in_the_docs_and_no_other_has():
    headings = re.findall(r"^#+ `(phyla_\w+)\(", PLUGINS_PAGE.read_text(), flags=re.MULTILINE)
    assert sorted(headings) == HOOKS


@pytest.mark.parametrize("name", HOOKS)
def test_a_hooks_heading_shows_its_arguments(name):
    arguments = ", ".join(inspect.signature(getattr(phyla.hooks, name)).parameters)
    assert f"`{name}({arguments})`" in PLUGINS_PAGE.read_text()
