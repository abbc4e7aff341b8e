"""Writes the golden files: what transformers computes for the tiny configs of each family.

Run it when a tiny config is added (needs the `parity` extra)::

    python scripts/make_golden.py

tests/families/test_golden.py makes the same checkpoints again, without torch, from the names and
shapes in the files: the weights follow from those and a seed (`phyla.testing.random_tensor`).
"""

from __future__ import annotations

import argparse
import json
import runpy
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from phyla.testing import Tiny, prompt_ids, read_tiny, write_files
from phyla.testing.reference import (
    Reference,
    random_tensors,
    tensor_shapes,
    write_reference_checkpoint,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

FAMILIES = Path(__file__).resolve().parent.parent / "tests" / "families"
PROMPT_LENGTH = 40
GREEDY_TOKENS = 16
POSITIONS = (0, 1, 17, 39)
COLUMNS = (0, 1, 97, 255, 256, 287)
# A choice between two tokens this close, as a part of the logits' range, may go either way.
MARGIN = 1e-3


def golden(tiny: Tiny, family: str, scratch: Path) -> dict[str, Any]:
    """What the reference computes for one tiny config."""
    config = dict(tiny.config)
    scaled = family == "minicpm" and config.get("model_type") in (None, "minicpm")
    folding = runpy.run_path(str(FAMILIES / "minicpm" / "folding.py")) if scaled else {}
    folder = scratch / "tiny"
    known = folding["llama_config"](config) if scaled else config
    write_reference_checkpoint(folder, known)
    shapes = tensor_shapes(folder)
    if scaled:
        if config["tie_word_embeddings"]:
            del shapes["lm_head.weight"]
        write_files(folder, known, folding["llama_tensors"](config, random_tensors(shapes)))
    reference = Reference(folder)
    for seed in range(100):
        ids = prompt_ids(PROMPT_LENGTH, seed=seed)
        tokens, rows = reference.greedy(ids, GREEDY_TOKENS)
        if _decided(rows):
            break
    else:
        raise SystemExit(f"{family}, {tiny.name}: no prompt whose greedy tokens are clear")
    logits = reference.logits(ids)
    return {
        "config": config,
        "shapes": shapes,
        "prompt_seed": seed,
        "range": _short(logits.max() - logits.min()),
        "logits": [[_short(logits[row, column]) for column in COLUMNS] for row in POSITIONS],
        "tokens": tokens,
    }


def _decided(rows: NDArray[np.float32]) -> bool:
    best = np.sort(rows, axis=-1)[:, -2:]
    spread = rows.max() - rows.min()
    return bool(((best[:, 1] - best[:, 0]) > MARGIN * spread).all())


def _short(value: float) -> float:
    return float(f"{value:.7g}")


def main() -> None:
    """Write a golden file for each family, or for those that are named."""
    parser = argparse.ArgumentParser(description="Write the golden files of the tiny configs.")
    parser.add_argument(
        "families",
        nargs="*",
        default=["llama", "qwen3", "minicpm", "gemma4", "lfm2_vl", "nemotron_h"],
    )
    for family in parser.parse_args().families:
        table = read_tiny(FAMILIES / family / "tiny.json")
        branches: dict[str, Any] = {}
        for name, tiny in table.items():
            with tempfile.TemporaryDirectory() as scratch:
                branches[name] = golden(tiny, family, Path(scratch))
            if tiny.config.get("model_type") == "llama" and family == "minicpm":
                branches[name]["chat_template"] = tiny.chat_template
        content = {
            "reference": _versions(),
            "prompt_length": PROMPT_LENGTH,
            "positions": POSITIONS,
            "columns": COLUMNS,
            "branches": branches,
        }
        path = FAMILIES / "golden" / f"{family}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(_one_line_each(content), encoding="utf-8")
        print(f"{path.name}: {len(branches)} branches, {path.stat().st_size} bytes")


def _versions() -> str:
    import torch
    import transformers

    return f"transformers {transformers.__version__}, torch {torch.__version__}, float32"


def _one_line_each(content: dict[str, Any]) -> str:
    """JSON with a line for each branch, so that a change shows where it is."""
    head = {key: value for key, value in content.items() if key != "branches"}
    lines = [
        f"{json.dumps(name)}: {json.dumps(branch, separators=(',', ':'))}"
        for name, branch in content["branches"].items()
    ]
    body = ",\n".join(lines)
    return f'{json.dumps(head)[:-1]}, "branches": {{\n{body}\n}}}}\n'


if __name__ == "__main__":
    main()
