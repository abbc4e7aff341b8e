"""`import phyla` is light: what it loads, and that its names are all there."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import phyla

MEDIA = {"PIL", "av", "librosa", "transformers", "torch"}
# Whatever takes long to import; `import phyla` shall be quick.
HEAVY = {*MEDIA, "datasets", "gguf", "huggingface_hub", "jinja2", "mlx", "numpy", "phyla_families"}
HEAVY |= {"pluggy", "pydantic", "rich", "tokenizers", "typer"}


def loaded_by(code: str) -> set[str]:
    """The top-level packages in memory after running `code` in a new interpreter."""
    report = f"{code}\nimport json, sys\nprint(json.dumps(list(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", report], check=True, capture_output=True, text=True
    )
    return {name.partition(".")[0] for name in json.loads(done.stdout)}


def test_importing_phyla_loads_nothing_heavy():
    assert loaded_by("import phyla").isdisjoint(HEAVY)


def test_the_plain_modules_load_neither_mlx_nor_media_libraries():
    plain = "errors messages options events hooks registry checkpoint backend"
    loaded = loaded_by("".join(f"import phyla.{module}\n" for module in plain.split()))
    assert loaded.isdisjoint({*MEDIA, "gguf", "huggingface_hub", "mlx"})


def test_listing_the_families_loads_no_media_library():
    loaded = loaded_by("import phyla.registry; phyla.registry.discover().listing()")
    assert loaded.isdisjoint(MEDIA)


@pytest.mark.parametrize("name", phyla.__all__)
def test_every_public_name_resolves(name):
    assert getattr(phyla, name) is not None
    assert name in dir(phyla)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        phyla.nothing  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]
