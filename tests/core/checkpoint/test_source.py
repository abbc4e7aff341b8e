from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from phyla.checkpoint import demo, open_checkpoint, pull
from phyla.errors import CheckpointError

pytestmark = pytest.mark.usefixtures("nothing_loads")

NAMES = ["no-such-model", "a/b/c", "-x/y", "what is the capital?", "x" * 5000, "a\0b", ""]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps relative names from meaning what lies in the folder that the tests run in."""
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")


@pytest.mark.parametrize("name", [name for name in NAMES if name])
def test_a_name_that_is_neither_path_nor_hub_id_says_what_was_tried(name: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(name)
    assert str(Path.cwd()) in str(caught.value)
    assert "not a Hub id" in str(caught.value)
    assert "owner/name" in str(caught.value)


@pytest.mark.parametrize("name", ["", " "])
def test_an_empty_name_names_no_model(name: str) -> None:
    with pytest.raises(CheckpointError, match="There is no model named"):
        open_checkpoint(name)


@pytest.mark.parametrize(
    "source",
    ["/no/such/folder", "./no", "../no", "no-such.gguf", "owner/no.gguf", Path("owner/name")],
)
def test_a_path_that_does_not_exist_is_not_asked_of_the_hub(source: str | Path) -> None:
    with pytest.raises(CheckpointError, match="There is no ") as caught:
        open_checkpoint(source)
    assert caught.value.file == str(Path(source))


def test_a_file_of_another_kind_is_refused(two_shards: Path) -> None:
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(two_shards / "model-00001-of-00002.safetensors")
    assert str(two_shards) in str(caught.value.hint)


def test_a_folder_is_taken_before_a_hub_id_of_its_name(two_shards: Path) -> None:
    two_shards.rename("name")
    Path("owner").mkdir()
    Path("name").rename("owner/name")
    assert open_checkpoint("owner/name").path == Path("owner/name")


def test_the_home_folder_s_sign_is_understood(two_shards: Path, monkeypatch) -> None:
    monkeypatch.setenv("HOME", str(two_shards.parent))
    monkeypatch.setenv("USERPROFILE", str(two_shards.parent))
    assert open_checkpoint("~/model").path == two_shards


def test_pull_checks_a_local_model_and_returns_where_it_is(two_shards: Path) -> None:
    assert pull(two_shards) == two_shards
    (two_shards / "model-00001-of-00002.safetensors").unlink()
    with pytest.raises(CheckpointError):
        pull(two_shards)


@pytest.mark.parametrize(("terminal", "expected"), [(True, True), (False, False)])
def test_progress_is_shown_on_a_terminal_only(monkeypatch, two_shards, terminal, expected) -> None:
    asked: list[tuple[bool, bool]] = []

    def fetch(*, offline: bool, progress: bool, download: object) -> Path:
        asked.append((offline, progress))
        return two_shards

    monkeypatch.setattr(demo, "fetch_demo", fetch)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    open_checkpoint("demo")
    monkeypatch.delenv("HF_HUB_OFFLINE")
    open_checkpoint("demo")
    open_checkpoint("demo", offline=True, progress=not terminal)
    assert asked == [(True, expected), (False, expected), (True, not expected)]


def test_a_folder_named_demo_is_opened_by_its_path(two_shards: Path) -> None:
    two_shards.rename("demo")
    assert open_checkpoint("./demo").path == Path("demo")
    assert json.loads(Path("demo/config.json").read_text())["model_type"] == "toy"
