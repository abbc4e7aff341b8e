"""Fixtures for every test: throw-away installed packages, and checkpoints that are only headers."""

from __future__ import annotations

import importlib
import os
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from hypothesis import settings

from phyla.checkpoint import Checkpoint, TokenizerData
from phyla.registry import discover

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from phyla.registry import Registry

# No test may fail because a machine is slow. What else hypothesis has chosen, for CI say, stays.
settings.register_profile(
    "phyla",
    settings(),
    deadline=None,
    max_examples=100 if os.environ.get("PHYLA_THOROUGH") else 50,
)
settings.load_profile("phyla")

# Modules that tests share: their asserts are to say as much as those of the tests.
pytest.register_assert_rewrite("tests.core.engine")

# Packages of their own: they are installed by pip and bring their own settings and tests.
collect_ignore = ["third_party"]


@pytest.fixture(scope="session", autouse=True)
def plugins_known() -> Iterator[None]:
    """Installed plugins are looked for once, while the search path is that of the beginning.

    That takes longer than to load a tiny model, and every model that is loaded asks for it.
    """
    path, known = list(sys.path), discover()

    def discovered() -> Registry:
        return known if sys.path == path else discover()

    with pytest.MonkeyPatch.context() as patch:
        for module in ("engine.engine", "testing.tiny", "testing.forward"):
            patch.setattr(f"phyla.{module}.discover", discovered)
        yield


class Site:
    """A folder on the search path that packages are installed into, as an installer leaves them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(
        self,
        distribution: str,
        *,
        modules: Mapping[str, str],
        entry_points: Mapping[str, str],
        group: str = "phyla.families",
        version: str = "1.0",
    ) -> None:
        """Write modules (name to source) and the metadata that declares their entry points."""
        for name, source in modules.items():
            (self.folder / f"{name}.py").write_text(source)
        info = self.folder / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n"
        )
        lines = [f"{name} = {value}" for name, value in entry_points.items()]
        (info / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines, ""]))
        importlib.invalidate_caches()

    def install_family(
        self,
        distribution: str,
        source: str,
        *,
        entry_point: str = "toy",
        group: str = "phyla.families",
        version: str = "1.0",
    ) -> None:
        """Install a package of one module, whose entry point is that module."""
        module = f"{distribution.replace('-', '_')}_plugin"
        self.install(
            distribution,
            modules={module: source},
            entry_points={entry_point: module},
            group=group,
            version=version,
        )

    @property
    def entries(self) -> list[metadata.EntryPoint]:
        """Phyla's entry points of the packages in this folder, and of no others."""
        return [
            entry
            for distribution in metadata.distributions(path=[str(self.folder)])
            for entry in distribution.entry_points
            if entry.group.startswith("phyla.")
        ]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """An empty folder at the head of the search path; what is imported from it is forgotten."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    yield Site(folder)
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(folder)):
            del sys.modules[name]


class CheckpointMaker(Protocol):
    def __call__(
        self, model_type: str | None, *, chat_template: str | None = None, **config: Any
    ) -> Checkpoint: ...


def _tensors() -> dict[str, Any]:
    raise AssertionError("this checkpoint has no weights")


@pytest.fixture(scope="session")
def checkpoint_of() -> CheckpointMaker:
    """Makes a checkpoint that is a config and a template, without any file."""

    def make(
        model_type: str | None, *, chat_template: str | None = None, **config: Any
    ) -> Checkpoint:
        typed = {} if model_type is None else {"model_type": model_type}
        return Checkpoint(
            path=Path("nowhere"),
            name="nowhere",
            format="safetensors",
            config={**typed, **config},
            generation_config={},
            tensors={},
            tokenizer=lambda: TokenizerData(json="{}"),
            chat_templates={} if chat_template is None else {"default": chat_template},
            quantization=None,
            overrides={},
            load=_tensors,
        )

    return make
