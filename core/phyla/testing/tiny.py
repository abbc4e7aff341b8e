"""Tiny checkpoints with random weights, for any family that is installed."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import mlx.core as mx
from mlx.utils import tree_flatten

from phyla.checkpoint import Checkpoint
from phyla.checkpoint.checkpoint import TokenizerData
from phyla.registry import discover
from phyla.testing.files import CHATML, write_files
from phyla.testing.tokenizer import BYTE_TOKENS, MARKS, tokenizer_json
from phyla.testing.weights import random_tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from phyla.registry import Registry


@dataclass(frozen=True)
class Tiny:
    """One branch of an architecture: a config.json and a chat template.

    `marks` are the texts that the tokenizer has a token for, beside those of turns; `preprocessing`
    is what the files that say how media are prepared hold, by file name.
    """

    name: str
    config: Mapping[str, Any]
    chat_template: str = CHATML
    marks: Sequence[str] = MARKS
    preprocessing: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def write(self, folder: Path, *, registry: Registry | None = None) -> Path:
        """Write it as a checkpoint; see `write_checkpoint`."""
        path = write_checkpoint(
            folder,
            self.config,
            chat_template=self.chat_template,
            marks=self.marks,
            registry=registry,
        )
        for name, content in self.preprocessing.items():
            (path / name).write_text(json.dumps(content), encoding="utf-8")
        return path


def tiny_table(
    base: Mapping[str, Any], branches: Mapping[str, Mapping[str, Any]]
) -> dict[str, Tiny]:
    """A table of tiny configs: each branch is the base with its own keys over it.

    None removes a key, and `chat_template` goes beside the config.

    Args:
        base: a config.json.
        branches: by name, what they have otherwise.
    """
    table: dict[str, Tiny] = {}
    for name, changes in branches.items():
        config = {key: value for key, value in {**base, **changes}.items() if value is not None}
        template = config.pop("chat_template", CHATML)
        table[name] = Tiny(name, config, template)
    return table


def read_tiny(path: Path) -> dict[str, Tiny]:
    """Read a table of tiny configs from a file.

    It is a list of groups, `{"base": {...}, "branches": {name: {...}}}`; see `tiny_table`.
    """
    table: dict[str, Tiny] = {}
    for group in json.loads(path.read_text(encoding="utf-8")):
        table |= tiny_table(group["base"], group["branches"])
    return table


def prompt_ids(count: int, *, seed: int = 0) -> list[int]:
    """A prompt of `count` bytes, drawn at random."""
    values = random_tensor("prompt", (count, 1), seed=seed)[:, 0]
    spread = (values + 3.0**0.5) / (2 * 3.0**0.5)  # the values lie between -sqrt(3) and sqrt(3)
    return [min(int(value * BYTE_TOKENS), BYTE_TOKENS - 1) for value in spread]


def write_checkpoint(
    folder: Path,
    config: Mapping[str, Any],
    *,
    seed: int = 0,
    chat_template: str | None = CHATML,
    generation_config: Mapping[str, Any] | None = None,
    dtype: str = "float32",
    quantize: Mapping[str, Any] | None = None,
    rename: Callable[[str], str] = str,
    marks: Sequence[str] = MARKS,
    special_marks: bool = False,
    registry: Registry | None = None,
) -> Path:
    """Write a complete checkpoint with random weights; the same arguments give the same files.

    The family that the registry chooses for the config builds the model, and the file holds its
    parameters.

    Args:
        folder: where to; made if it is not there.
        config: the content of config.json.
        seed: of the weights.
        chat_template: the chat template, or None.
        generation_config: the content of generation_config.json; end-of-turn ids when None.
        dtype: what floating-point tensors are stored as.
        quantize: what config.json says under `quantization`: `bits`, `group_size`, `mode`, and by a
            layer's path in the file a scheme of its own, or false to leave it as it is. Matrices
            whose width the groups do not divide are left too.
        rename: from the model's parameter names to the file's; the family's weight rules must lead
            back.
        marks: texts that the tokenizer has a token for, instead of `<think>`, `<tool_call>` and
            what closes them.
        special_marks: whether those are special tokens.
        registry: the families to choose from; all installed ones when absent.

    Raises:
        UnsupportedModelError: no family takes the config.
        ConfigError: the family cannot read it.
        ValueError: its vocabulary is too small for the byte tokenizer.
    """
    seen = Checkpoint(
        path=folder,
        name=folder.name,
        format="safetensors",
        config=config,
        generation_config=generation_config or {},
        tensors={},
        tokenizer=lambda: TokenizerData(json=tokenizer_json(marks)),
        chat_templates={} if chat_template is None else {"default": chat_template},
        quantization=None,
        overrides={},
        load=dict,
    )
    family = (registry or discover()).family_for(seen)
    model = family.model(family.config.read(config))
    parameters: dict[str, mx.array] = dict(tree_flatten(model.parameters()))
    stored: mx.Dtype = getattr(mx, dtype)
    tensors = {
        rename(name): mx.array(random_tensor(name, parameter.shape, seed=seed)).astype(stored)
        for name, parameter in parameters.items()
    }
    if quantize is not None:
        tensors = _packed(tensors, quantize)
        config = {**config, "quantization": dict(quantize)}
    return write_files(
        folder,
        config,
        tensors,
        chat_template=chat_template,
        generation_config=generation_config,
        marks=marks,
        special_marks=special_marks,
    )


def _packed(tensors: Mapping[str, mx.array], quantize: Mapping[str, Any]) -> dict[str, mx.array]:
    """The tensors with the matrices packed as the `quantization` block says."""
    shared = {key: quantize[key] for key in ("bits", "group_size", "mode") if key in quantize}
    packed: dict[str, mx.array] = {}
    for name, tensor in tensors.items():
        path, _, part = name.rpartition(".")
        own = quantize.get(path, shared)
        scheme = {**shared, **own} if isinstance(own, dict) else None
        if (
            scheme is None
            or part != "weight"
            or tensor.ndim < 2
            or tensor.shape[-1] % scheme["group_size"]
        ):
            packed[name] = tensor
            continue
        weight, scales, *biases = mx.quantize(tensor, **scheme)
        packed[name], packed[f"{path}.scales"] = weight, scales
        if biases:
            packed[f"{path}.biases"] = biases[0]
    return packed
