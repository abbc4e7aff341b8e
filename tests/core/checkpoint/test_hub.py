from __future__ import annotations

import io
from typing import TYPE_CHECKING

import huggingface_hub  # noqa: TID253  (the tests stand in for it)
import pytest
from huggingface_hub import constants, errors, utils  # noqa: TID253

from phyla.checkpoint import open_checkpoint, pull
from phyla.errors import CheckpointError

if TYPE_CHECKING:
    from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty Hub cache, and no Hub."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "hub"


@pytest.fixture
def cached(cache: Path, two_shards: Path) -> Path:
    """A repository `owner/name` in the cache, as the library lays it out."""
    repository = cache / "models--owner--name"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(COMMIT)
    (repository / "snapshots").mkdir()
    return two_shards.rename(repository / "snapshots" / COMMIT)


def test_a_cached_repository_is_opened_offline(cached: Path) -> None:
    checkpoint = open_checkpoint("owner/name", offline=True)
    assert checkpoint.path == cached
    assert checkpoint.name == "owner/name"
    assert set(checkpoint.tensors) == {"a", "b", "c", "d"}
    assert pull("owner/name", offline=True) == cached


def test_the_environment_can_forbid_the_network(cached: Path, monkeypatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert open_checkpoint("owner/name").path == cached


def test_a_cached_commit_is_opened_by_revision_and_another_is_not_there(cached: Path) -> None:
    assert open_checkpoint("owner/name", revision=COMMIT, offline=True).path == cached
    with pytest.raises(CheckpointError, match="'v2'"):
        open_checkpoint("owner/name", revision="v2", offline=True)


def test_a_cached_repository_that_lacks_a_shard_is_refused(cached: Path) -> None:
    (cached / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint("owner/name", offline=True)
    assert caught.value.file == "model-00002-of-00002.safetensors"


@pytest.mark.parametrize("source", ["owner/name", "owner/name:model.gguf"])
def test_offline_and_not_in_the_cache_says_to_pull_it(cache: Path, source: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(source, offline=True)
    assert caught.value.file == source
    assert f"phyla pull {source}" in str(caught.value.hint)


class Refusal(OSError):
    """Stands for whatever the library's HTTP client raises."""


@pytest.mark.parametrize(
    ("kind", "says", "hint"),
    [
        (errors.RepositoryNotFoundError, "no model 'owner/name'", "spelling"),
        (errors.GatedRepoError, "gated", "hf auth login"),
        (errors.RevisionNotFoundError, "no revision 'v2'", "branch"),
        (errors.LocalEntryNotFoundError, "cannot be reached", "network"),
        (errors.OfflineModeIsEnabled, "offline mode", "phyla pull owner/name"),
        (errors.HfHubHTTPError, "could not be fetched", "network"),
        (errors.HFValidationError, "not a Hub id", "owner/name"),
        (Refusal, "could not be fetched: Refusal", "network"),
    ],
)
def test_what_the_hub_refuses_is_an_error_with_a_next_step(
    cache: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Exception], says: str, hint: str
) -> None:
    def snapshot_download(*_args: object, **_settings: object) -> str:
        raise kind.__new__(kind)  # some want an HTTP response to be made from

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint("owner/name", revision="v2")
    assert says in str(caught.value)
    assert hint in str(caught.value.hint)
    assert isinstance(caught.value.__cause__, kind)


def test_a_file_that_the_repository_lacks_is_named(cache: Path, monkeypatch) -> None:
    def hf_hub_download(*_args: object, **_settings: object) -> str:
        raise errors.EntryNotFoundError.__new__(errors.EntryNotFoundError)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", hf_hub_download)
    with pytest.raises(CheckpointError, match=r"no file 'q/model\.gguf'"):
        open_checkpoint("owner/name:q/model.gguf")


@pytest.mark.parametrize(
    ("files", "says", "hint"),
    [
        (["README.md", "m.Q4_0.gguf", "m.Q8_0.gguf"], "GGUF", "owner/name:m.Q4_0.gguf"),
        (["config.json", "pytorch_model.bin"], "pytorch_model.bin", "MLX conversion"),
        (["README.md"], "found none", "MLX conversion"),
    ],
)
def test_a_repository_without_safetensors_says_what_it_has(
    cache: Path, tmp_path: Path, monkeypatch, files: list[str], says: str, hint: str
) -> None:
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: str(tmp_path))
    monkeypatch.setattr(huggingface_hub, "list_repo_files", lambda *_, **__: files)
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint("owner/name")
    assert says in str(caught.value)
    assert hint in str(caught.value.hint)


def test_only_what_a_checkpoint_needs_is_fetched(cached: Path, monkeypatch) -> None:
    files = {
        "config.json": True,
        "model-00001-of-00002.safetensors": True,
        "model.safetensors.index.json": True,
        "tokenizer.json": True,
        "tokenizer.model": True,
        "merges.txt": True,
        "chat_template.jinja": True,
        "additional_chat_templates/tool_use.jinja": True,
        "pytorch_model.bin": False,
        "consolidated.00.pth": False,
        "consolidated.safetensors": False,
        "original/model.safetensors": False,
        "onnx/config.json": False,
        "model.gguf": False,
    }
    fetched: list[str] = []

    def snapshot_download(repository: str, **settings) -> str:
        fetched.extend(
            utils.filter_repo_objects(
                files,
                allow_patterns=settings["allow_patterns"],
                ignore_patterns=settings["ignore_patterns"],
            )
        )
        return str(cached)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    open_checkpoint("owner/name")
    assert fetched == [name for name, wanted in files.items() if wanted]


@pytest.mark.parametrize("progress", [True, False])
def test_bars_are_shown_when_wanted_and_the_switch_is_put_back(
    cached: Path, monkeypatch, progress: bool
) -> None:
    monkeypatch.setattr(utils.tqdm, "HF_HUB_DISABLE_PROGRESS_BARS", None, raising=False)
    utils.enable_progress_bars()
    drawn = io.StringIO()

    def snapshot_download(*_args: object, **_settings: object) -> str:
        list(utils.tqdm(range(2), file=drawn))
        return str(cached)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    open_checkpoint("owner/name", progress=progress)
    assert bool(drawn.getvalue()) is progress
    assert not utils.are_progress_bars_disabled()
