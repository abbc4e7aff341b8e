"""Runs the Python in README.md, CONTRIBUTING.md and docs/, against a tiny model.

In such a block `phyla` is imported, `engine` is loaded, and `phyla.load` of a Hub id or of `demo`
loads the tiny model too, so that the blocks can be written as a reader would type them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sybil import Sybil
from sybil.parsers.myst import PythonCodeBlockParser, SkipParser

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import phyla

pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser(), SkipParser()],
    patterns=["README.md", "CONTRIBUTING.md", "docs/*.md"],
    fixtures=["phyla_in_docs", "engine"],
).pytest()

_CONFIG = {
    "model_type": "llama",
    "vocab_size": 264,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 512,
}


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of two layers with random weights and a vocabulary of bytes."""
    from phyla.testing import write_checkpoint

    return write_checkpoint(tmp_path_factory.mktemp("models") / "tiny-llama", _CONFIG)


@pytest.fixture(scope="session")
def engine(tiny_llama: Path) -> Iterator[phyla.Engine]:
    """The tiny model, loaded; it answers in at most 64 tokens."""
    import phyla

    with phyla.load(tiny_llama, options={"max_tokens": 64}) as loaded:
        yield loaded


@pytest.fixture
def phyla_in_docs(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `phyla.load` load the tiny model for every name that is no path."""
    import phyla
    from phyla.options import OptionsLike, read_options

    load = phyla.load
    short = phyla.Options(max_tokens=64)

    def load_tiny(
        source: str | Path, *, options: OptionsLike = None, **settings: Any
    ) -> phyla.Engine:
        is_path = not isinstance(source, str) or source.startswith((".", "/"))
        defaults = read_options(options).over(short)
        return load(source if is_path else tiny_llama, options=defaults, **settings)

    monkeypatch.setattr(phyla, "load", load_tiny)
