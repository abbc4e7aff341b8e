"""Installs the third-party package of tests/third_party with pip, and makes checkpoints for it."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

TOY = Path(__file__).parents[1] / "third_party" / "phyla-toy"

WORDS = ["<end>", "<unk>", *"abcdefghi"]
CONFIG = {
    "model_type": "toy",
    "vocab_size": len(WORDS),
    "hidden_size": 8,
    "num_heads": 2,
    "head_dim": 3,
    "mlp_size": 12,
    "max_position_embeddings": 64,
}


@pytest.fixture(scope="session")
def toy_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pip put the package: built from its own pyproject, with no network and no isolation."""
    folder = tmp_path_factory.mktemp("site-packages")
    source = tmp_path_factory.mktemp("source") / TOY.name
    _copy(TOY, source)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    offline = ["--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run(
        [*pip, *offline, "--target", str(folder), str(source)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def _copy(source: Path, target: Path) -> None:
    """Copy the files of the package, without what building or testing left in its folder."""
    for file in source.rglob("*"):
        if file.is_file() and "__pycache__" not in file.parts:
            copied = target / file.relative_to(source)
            copied.parent.mkdir(parents=True, exist_ok=True)
            copied.write_bytes(file.read_bytes())


@pytest.fixture
def toy_installed(toy_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package on the search path for one test."""
    monkeypatch.syspath_prepend(toy_folder)
    importlib.invalidate_caches()
    return toy_folder


@pytest.fixture
def toy_checkpoint(tmp_path: Path) -> Path:
    """A checkpoint of model type `toy` with seeded random weights and a vocabulary of letters."""
    folder = tmp_path / "toy-model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    mx.random.seed(0)
    heads = CONFIG["num_heads"] * CONFIG["head_dim"]
    shapes = {
        "embedding": (len(WORDS), 8),
        "norm": (8,),
        "attention.norm": (8,),
        "attention.q_proj": (heads, 8),
        "attention.k_proj": (heads, 8),
        "attention.v_proj": (heads, 8),
        "attention.o_proj": (8, heads),
        "mlp.gate_proj": (12, 8),
        "mlp.up_proj": (12, 8),
        "mlp.down_proj": (8, 12),
    }
    weights = {f"toy.{name}.weight": mx.random.normal(shape) for name, shape in shapes.items()}
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "pt"})
    tokenizer = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(["<end>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<end>"}))
    return folder
