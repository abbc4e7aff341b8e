"""Writes a model of type_models.py with random weights: python write_model.py TYPE FOLDER.

The names of the weights are those of the published files, so that every program reads them by its
own rules. Needs the `parity` extra for the architectures that transformers has.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from type_models import MODELS, VOCABULARY

from phyla.testing import MARKS, write_checkpoint
from phyla.testing.reference import write_reference_checkpoint
from phyla.testing.tokenizer import tokenizer_json, vocabulary_size

if TYPE_CHECKING:
    import mlx.core as mx
    from type_models import TypeModel

_EXPERT = re.compile(r"(.*\.experts)\.(\d+)\.(gate|up|down)_proj\.weight")


def write_model(model: TypeModel, folder: Path) -> None:
    """Write one with as many tokens in its tokenizer as rows in its head."""
    prefix = model.prefix
    if prefix is None:
        write_reference_checkpoint(folder, model.config)
    else:
        write_checkpoint(
            folder,
            model.config,
            rename=lambda name: name if name.startswith("lm_head.") else prefix + name,
        )
    if model.fused:
        _fuse_experts(folder / "model.safetensors")
    more = VOCABULARY - vocabulary_size(MARKS)
    marks = (*MARKS, *(f"<word {number}>" for number in range(more)))
    (folder / "tokenizer.json").write_text(tokenizer_json(marks), encoding="utf-8")


def _fuse_experts(path: Path) -> None:
    """Put each layer's experts into two tensors, `[E, 2I, D]` and `[E, D, I]`."""
    import mlx.core as mx

    tensors = mx.load(str(path))
    assert isinstance(tensors, dict)
    parts: dict[tuple[str, str], dict[int, mx.array]] = defaultdict(dict)
    for name in list(tensors):
        if found := _EXPERT.fullmatch(name):
            experts, index, part = found.groups()
            parts[experts, part][int(index)] = tensors.pop(name)

    def stacked(experts: str, part: str) -> mx.array:
        each = parts[experts, part]
        return mx.stack([each[index] for index in range(len(each))])

    for experts in {experts for experts, _ in parts}:
        gate, up = stacked(experts, "gate"), stacked(experts, "up")
        tensors[f"{experts}.gate_up_proj"] = mx.concatenate([gate, up], axis=1)
        tensors[f"{experts}.down_proj"] = stacked(experts, "down")
    mx.save_safetensors(str(path), tensors, metadata={"format": "pt"})


if __name__ == "__main__":
    write_model(MODELS[sys.argv[1]], Path(sys.argv[2]))
