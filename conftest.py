"""Runs the Python in README.md, CONTRIBUTING.md and docs/, against a tiny model.

In such a block `phyla` is imported, `engine` is loaded, and `phyla.load` of a Hub id or of `demo`
loads the tiny model too, so that the blocks can be written as a reader would type them. What is
called something with VL, and `engine` on the page about media, is a tiny model that reads images,
audio and videos; such files are in the current folder.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from sybil import Sybil
from sybil.parsers.myst import PythonCodeBlockParser, SkipParser

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import phyla

if "PYTEST_XDIST_WORKER" in os.environ:
    # As many threads as cores in each of as many processes would wait for one another.
    os.environ.setdefault("OMP_NUM_THREADS", "1")

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
def tiny_engine(tiny_llama: Path) -> Iterator[phyla.Engine]:
    """The tiny model, loaded; it answers in at most 64 tokens."""
    import phyla

    with phyla.load(tiny_llama, options={"max_tokens": 64}) as loaded:
        yield loaded


@pytest.fixture(scope="session")
def tiny_sighted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with random weights that reads images, audio and videos."""
    from phyla.testing.sighted import sighted, sighted_registry

    folder = tmp_path_factory.mktemp("models") / "tiny-sighted"
    return sighted("fmfm").write(folder, registry=sighted_registry())


@pytest.fixture(scope="session")
def sighted_engine(tiny_sighted: Path) -> Iterator[phyla.Engine]:
    """That model, loaded; it answers in at most 16 tokens."""
    import phyla
    from phyla.testing.sighted import sighted_registry

    registry = sighted_registry()
    with phyla.load(tiny_sighted, options={"max_tokens": 16}, registry=registry) as loaded:
        yield loaded


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> phyla.Engine:
    """The engine that the blocks of a page use."""
    name = "sighted_engine" if request.path.name == "media.md" else "tiny_engine"
    return request.getfixturevalue(name)


@pytest.fixture(scope="session")
def media_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `photo.jpg`, `chart.png`, `question.wav` and `clip.mp4`."""
    import wave

    import av
    import numpy as np
    import PIL.Image

    from phyla.testing.sight import picture, tone

    folder = tmp_path_factory.mktemp("media")
    PIL.Image.fromarray(picture(1, height=48, width=64)).save(folder / "photo.jpg", quality=95)
    PIL.Image.fromarray(picture(2, height=40, width=40)).save(folder / "chart.png")
    with wave.open(str(folder / "question.wav"), "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(16000)
        sound.writeframes((tone(440) * 32767).astype(np.int16).tobytes())
    with av.open(str(folder / "clip.mp4"), "w") as film:
        stream = film.add_stream("mpeg4", rate=2)
        stream.width, stream.height, stream.pix_fmt = 32, 16, "yuv420p"
        for seed in range(4):
            pixels = picture(seed, height=16, width=32)
            film.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        film.mux(stream.encode())
    return folder


@pytest.fixture
def phyla_in_docs(
    request: pytest.FixtureRequest, media_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Make `phyla.load` load a tiny model for every name that is no path."""
    import phyla
    from phyla.options import OptionsLike, read_options
    from phyla.testing.sighted import sighted_registry

    load = phyla.load
    short = phyla.Options(max_tokens=64)

    def load_tiny(
        source: str | Path, *, options: OptionsLike = None, **settings: Any
    ) -> phyla.Engine:
        defaults = read_options(options).over(short)
        if isinstance(source, str) and not source.startswith((".", "/")):
            sighted = "VL" in source
            source = request.getfixturevalue("tiny_sighted" if sighted else "tiny_llama")
            if sighted:
                settings["registry"] = sighted_registry()
        return load(source, options=defaults, **settings)

    monkeypatch.setattr(phyla, "load", load_tiny)
    monkeypatch.chdir(media_folder)
