"""Installs the third-party package of tests/third_party with pip, and makes a checkpoint for it."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from phyla.testing import write_checkpoint

TOY = Path(__file__).parents[1] / "third_party" / "phyla-toy"
CONFIG = {
    "model_type": "toy",
    "vocab_size": 264,
    "hidden_size": 16,
    "num_blocks": 2,
    "num_heads": 2,
    "head_dim": 6,
    "mlp_size": 24,
}


@pytest.fixture(scope="session")
def toy_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pip put the package: built from its own pyproject, with no network and no isolation."""
    folder = tmp_path_factory.mktemp("site-packages")
    source = tmp_path_factory.mktemp("source") / TOY.name
    shutil.copytree(TOY, source, ignore=shutil.ignore_patterns("__pycache__", ".*", "build"))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    offline = ["--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run(
        [*pip, *offline, "--target", str(folder), str(source)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture
def toy_installed(toy_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package on the search path for one test."""
    monkeypatch.syspath_prepend(toy_folder)
    importlib.invalidate_caches()
    return toy_folder


@pytest.fixture
def toy_checkpoint(toy_installed: Path, tmp_path: Path) -> Path:
    """A checkpoint of model type `toy` with random weights, in the names that its rules expect."""
    return write_checkpoint(tmp_path / "toy-model", CONFIG, rename=lambda name: f"toy.{name}")
