"""Writes a model as a folder that mlx-lm reads: python export.py MODEL FOLDER float32|stored.

The weights are the ones that Phyla reads, under the names of the Hugging Face layout: unpacked to
float32, or as they are stored.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phyla.backend import prepare

prepare()  # before MLX

import mlx.core as mx  # noqa: E402

from phyla.checkpoint import open_checkpoint  # noqa: E402
from phyla.engine.quantize import declared_schemes, packed_layers, scheme_of, unpack  # noqa: E402
from phyla.engine.weight_rules import place  # noqa: E402

if TYPE_CHECKING:
    from phyla.checkpoint import Checkpoint, QuantizationScheme


def export(checkpoint: Checkpoint, folder: Path, *, float32: bool) -> None:
    """Write weights, config and tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    schemes = _schemes(checkpoint)
    store = checkpoint.load()
    arrays: dict[str, mx.array] = {}
    for name in checkpoint.tensors:
        path, _, part = name.rpartition(".")
        scheme = schemes.get(path)
        if scheme is None or not float32:
            array = store.pop(name)
            floating = mx.issubdtype(array.dtype, mx.floating)
            arrays[name] = array.astype(mx.float32) if float32 and floating else array
        elif part == "weight":
            has_biases = f"{path}.biases" in checkpoint.tensors
            arrays[name] = unpack(
                store.pop(name),
                store.pop(f"{path}.scales"),
                store.pop(f"{path}.biases") if has_biases else None,
                scheme,
                mx.float32,
            )
    mx.save_safetensors(str(folder / "model.safetensors"), arrays, metadata={"format": "mlx"})

    config = _config(checkpoint)
    if schemes and not float32:
        config["quantization"] = _quantization(schemes)
    _write(folder / "config.json", config)
    tokenizer = checkpoint.tokenizer()
    (folder / "tokenizer.json").write_text(tokenizer.json, encoding="utf-8")
    _write(
        folder / "tokenizer_config.json",
        {
            **tokenizer.config,
            **tokenizer.special_tokens,
            "tokenizer_class": "PreTrainedTokenizerFast",
        },
    )


def _schemes(checkpoint: Checkpoint) -> dict[str, QuantizationScheme]:
    declared = declared_schemes(checkpoint, ())
    layers = packed_layers(place(checkpoint.tensors, ()))
    return {path: scheme_of(layer, declared) for path, layer in layers.items()}


def _config(checkpoint: Checkpoint) -> dict[str, Any]:
    config = dict(checkpoint.config)
    for key in ("quantization", "quantization_config"):
        config.pop(key, None)
    # mlx-lm reads the older spelling of the rotary keys.
    rope = dict(config.get("rope_parameters") or {})
    if "rope_theta" in rope:
        config["rope_theta"] = rope.pop("rope_theta")
    if rope.get("rope_type", rope.get("type", "default")) != "default":
        config.setdefault("rope_scaling", rope)
    head = any(name.endswith("lm_head.weight") for name in checkpoint.tensors)
    config.setdefault("tie_word_embeddings", not head)
    return config


def _quantization(schemes: dict[str, QuantizationScheme]) -> dict[str, Any]:
    """One scheme for all, and each layer's own next to it."""
    first = next(iter(schemes.values()))
    return {**asdict(first), **{path: asdict(scheme) for path, scheme in schemes.items()}}


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    export(open_checkpoint(sys.argv[1]), Path(sys.argv[2]), float32=sys.argv[3] == "float32")
