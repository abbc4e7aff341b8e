"""Fetches a model repository from the Hugging Face Hub through `huggingface_hub`, and its cache.

Knows which files of a repository are worth fetching, and what the library's exceptions mean.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from phyla.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Iterator

_WANTED = ["*.json", "*.safetensors", "*.jinja", "*.txt", "tokenizer.model"]
# Weights in subfolders and `consolidated*` are second copies, in another layout.
_UNWANTED = ["*/*.safetensors", "consolidated*.safetensors", "onnx/*", "original/*"]


def fetch_repository(
    repository: str,
    *,
    file: str | None = None,
    revision: str | None = None,
    offline: bool = False,
    progress: bool = False,
) -> Path:
    """Fetch a repository, or one file of it, into the Hub's cache; what is there is not fetched.

    Args:
        repository: the Hub id, `owner/name`.
        file: a GGUF file in the repository; None fetches what a safetensors checkpoint needs.
        revision: a branch, tag or commit; None is `main`.
        offline: use what the cache holds, without asking the Hub.
        progress: show the library's bars on standard error.

    Returns:
        The folder, or the one file.

    Raises:
        CheckpointError: it does not exist, may not be read, cannot be reached, or holds no
            safetensors file.
    """
    import huggingface_hub

    with _errors_named(repository, file, revision, offline=offline), _bars(shown=progress):
        if file is not None:
            return Path(
                huggingface_hub.hf_hub_download(
                    repository, file, revision=revision, local_files_only=offline
                )
            )
        folder = Path(
            huggingface_hub.snapshot_download(
                repository,
                revision=revision,
                local_files_only=offline,
                allow_patterns=_WANTED,
                ignore_patterns=_UNWANTED,
            )
        )
        if offline or any(folder.glob("*.safetensors")):
            return folder
        files = huggingface_hub.list_repo_files(repository, revision=revision)
    raise _no_safetensors(repository, files)


def _no_safetensors(repository: str, files: list[str]) -> CheckpointError:
    ggufs = [name for name in files if name.endswith(".gguf")]
    others = [name for name in files if name.endswith((".bin", ".pth", ".pt"))]
    if ggufs:
        shown = ", ".join(ggufs[:8]) + (f" and {len(ggufs) - 8} more" if len(ggufs) > 8 else "")
        return CheckpointError(
            f"{repository} holds GGUF files only: {shown}.",
            file=repository,
            found=ggufs,
            expected="*.safetensors",
            hint=f"Choose one by name: {repository}:{ggufs[0]}",
        )
    found = f"only {', '.join(others[:3])}" if others else "none"
    return CheckpointError(
        f"{repository} has no safetensors file: found {found}.",
        file=repository,
        found=others,
        expected="*.safetensors",
        hint="Use a repository that has its weights as safetensors, such as an MLX conversion.",
    )


@contextmanager
def _bars(*, shown: bool) -> Iterator[None]:
    from huggingface_hub import utils

    # The library has one switch for all its bars; it is put back as it was found.
    if shown or utils.are_progress_bars_disabled():
        yield
        return
    utils.disable_progress_bars()
    try:
        yield
    finally:
        utils.enable_progress_bars()


@contextmanager
def _errors_named(
    repository: str, file: str | None, revision: str | None, *, offline: bool
) -> Iterator[None]:
    from huggingface_hub import errors

    wanted = repository if file is None else f"{repository}:{file}"
    at = f" at revision {revision!r}" if revision else ""

    def failed(message: str, *, found: str, hint: str) -> CheckpointError:
        return CheckpointError(message, file=wanted, found=found, hint=hint)

    try:
        yield
    except errors.GatedRepoError as error:  # before its base, RepositoryNotFoundError
        raise failed(
            f"{repository} is gated: its owners give access on request.",
            found="no access",
            hint="Ask for access on the model's page, then run `hf auth login` or set HF_TOKEN.",
        ) from error
    except errors.RevisionNotFoundError as error:
        raise failed(
            f"{repository} has no revision {revision!r}.",
            found=f"no revision {revision!r}",
            hint="Name a branch, a tag or a commit of the repository, or leave it out.",
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise failed(
            f"The Hub has no model {repository!r} that you may read, and there is no folder "
            "of this name here.",
            found="no such repository",
            hint="Check the spelling; for a private model run `hf auth login` or set HF_TOKEN.",
        ) from error
    except errors.HFValidationError as error:
        raise failed(
            f"{repository!r} is not a Hub id: {error}.",
            found=repository,
            hint="Write it as owner/name.",
        ) from error
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled) as error:
        if offline or isinstance(error, errors.OfflineModeIsEnabled):
            raise failed(
                f"{wanted}{at} is not whole in the Hub's cache, and offline mode forbids to "
                "fetch it.",
                found="not in the cache",
                hint=f"Run `phyla pull {wanted}` once with a network.",
            ) from error
        raise failed(
            f"{wanted}{at} is not in the cache, and the Hub cannot be reached: {_first(error)}.",
            found="no connection",
            hint="Check the network (and HF_ENDPOINT, HTTPS_PROXY), and try again.",
        ) from error
    except errors.EntryNotFoundError as error:
        raise failed(
            f"{repository}{at} has no file {file!r}.",
            found="no such file",
            hint="Look up the file's name on the model's page.",
        ) from error
    except CheckpointError:
        raise
    except Exception as error:
        # The library lets its HTTP client's exceptions through, and has changed client twice.
        raise failed(
            f"{wanted}{at} could not be fetched: {_first(error)}.",
            found=type(error).__name__,
            hint="Check the network and the room on the disk, and try again.",
        ) from error


def _first(error: BaseException) -> str:
    """The first line of an exception's text, and of what caused it if that says more."""
    cause = error.__cause__ or error
    lines = str(cause).strip().splitlines()
    return (
        f"{type(cause).__name__}: {lines[0].removesuffix('.')}" if lines else type(cause).__name__
    )
