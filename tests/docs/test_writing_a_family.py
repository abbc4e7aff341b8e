"""The page about writing a family: its blocks are a package that is found, runs and conforms."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest
from typer.testing import CliRunner

import phyla
from phyla import nn
from phyla.cli.app import make_app
from phyla.cli.shell import Shell
from phyla.family import Dialect, Family, Model, Step, WeightRule
from phyla.testing import Conformance, registry_of, subjects, write_checkpoint

PAGE = (Path(__file__).parents[2] / "docs" / "writing-a-family.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"^```python\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)


def source(file: str) -> str:
    """The blocks of the page that belong into a file, one after another."""
    return "\n\n".join(block for block in PYTHON if block.startswith(f"# {file}: "))


def names_in_the_text() -> set[str]:
    """All words that stand in code within the text, outside blocks."""
    text = re.sub(r"^```.*?^```$", "", PAGE, flags=re.MULTILINE | re.DOTALL)
    return {word for code in re.findall(r"`([^`]+)`", text) for word in re.findall(r"\w+", code)}


written: dict[str, Any] = {"__name__": __name__}
exec(source("plugin.py"), written)
exec(source("test_wren.py"), written)

# The branch with all kinds of caches; the page's own blocks run the other one.
BRANCH = "sliding, tied"
subject = subjects({BRANCH: written["TINY"][BRANCH]}, registry=registry_of(written["WREN"]))


class TestConformance(Conformance):
    pass


@pytest.fixture
def installed(site):
    """The package in a folder on the search path, with the entry point of the page's pyproject."""
    entry = re.search(
        r'^\[project\.entry-points\."phyla\.families"\]\n(\w+) = "([\w.]+)"$', PAGE, re.MULTILINE
    )
    assert entry is not None
    package, module = entry[2].split(".")
    (site.folder / package).mkdir()
    site.install(
        "phyla-wren",
        modules={f"{package}/__init__": "", f"{package}/{module}": source("plugin.py")},
        entry_points={entry[1]: entry[2]},
        version="0.1.0",
    )


@pytest.mark.usefixtures("installed")
def test_the_installed_package_is_listed():
    shell = Shell.installed()
    result = CliRunner().invoke(make_app(shell), ["families", "--json"], obj=shell)
    (row,) = [row for row in json.loads(result.stdout)["families"] if row["name"] == "wren"]
    assert (row["distribution"], row["version"], row["clash"]) == ("phyla-wren", "0.1.0", None)


@pytest.mark.usefixtures("installed")
def test_a_checkpoint_finds_the_installed_package_by_its_model_type(tmp_path):
    folder = write_checkpoint(tmp_path / "tiny", written["BASE"])
    with phyla.load(folder) as engine:
        assert engine.family == "wren"
        reply = engine.generate([2, 5, 3], options={"max_tokens": 3, "ignore_eos": True})
    assert len(reply.tokens) == 3


def test_the_page_names_every_block():
    assert set(nn.__all__) - names_in_the_text() == set()


@pytest.mark.parametrize("kind", [Dialect, Family, Step])
def test_the_page_names_every_field(kind):
    fields = {field.name for field in dataclasses.fields(kind)}
    assert fields - names_in_the_text() == set()


def test_the_page_names_every_rule():
    rules = {kind.__name__ for kind in get_args(WeightRule)}
    assert rules - names_in_the_text() == set()


def test_the_page_shows_or_names_every_method_of_a_model():
    methods = {name for name in vars(Model) if not name.startswith("_")} - {
        "media_features",  # those are told where media are
        "media_positions",
    }
    shown = {name for block in PYTHON for name in re.findall(r"def (\w+)", block)}
    assert methods - shown - names_in_the_text() == set()
