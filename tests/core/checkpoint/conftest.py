"""Tiny checkpoints on disk, whole or broken on purpose."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "U32": 4, "U8": 1, "F8_E4M3": 1, "F8_E8M0": 1}

Layout = Mapping[str, tuple[str, list[int]]]  # name -> dtype, shape
WriteSafetensors = Callable[[Path, Layout], Path]
WriteFolder = Callable[..., Path]


def _safetensors_bytes(layout: Layout) -> bytes:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, (dtype, shape) in layout.items():
        size = BYTES[dtype]
        for length in shape:
            size *= length
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(number % 251 for number in range(offset))


@pytest.fixture(scope="session")
def safetensors_bytes() -> Callable[[Layout], bytes]:
    """Makes a safetensors file's bytes from names, dtypes and shapes."""
    return _safetensors_bytes


@pytest.fixture
def write_folder(tmp_path: Path) -> WriteFolder:
    """Writes a checkpoint folder; `shards` maps a file's name to its layout."""

    def write(
        shards: Mapping[str, Layout] | None = None,
        *,
        index: bool | Mapping[str, str] = False,
        config: object = None,
    ) -> Path:
        folder = tmp_path / "model"
        folder.mkdir(exist_ok=True)
        settings = {"model_type": "toy"} if config is None else config
        (folder / "config.json").write_text(json.dumps(settings))
        shards = {"model.safetensors": {"w": ("F32", [2, 3])}} if shards is None else shards
        for file, layout in shards.items():
            (folder / file).write_bytes(_safetensors_bytes(layout))
        if index:
            weight_map = (
                {name: file for file, layout in shards.items() for name in layout}
                if index is True
                else index
            )
            (folder / "model.safetensors.index.json").write_text(
                json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map})
            )
        return folder

    return write


@pytest.fixture
def two_shards(write_folder: WriteFolder) -> Path:
    """A whole checkpoint in two shards with an index."""
    return write_folder(
        {
            "model-00001-of-00002.safetensors": {"a": ("F32", [2, 3]), "b": ("BF16", [4])},
            "model-00002-of-00002.safetensors": {"c": ("F16", [5]), "d": ("F32", [])},
        },
        index=True,
    )


@pytest.fixture
def nothing_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes reading any weight fail the test."""
    import mlx.core as mx

    def load(*_args: object, **_settings: object) -> None:
        pytest.fail("a weight was read")

    monkeypatch.setattr(mx, "load", load)
