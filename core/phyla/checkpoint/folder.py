"""Reads a folder in Hugging Face layout into a Checkpoint: JSON files whole, weights by header.

This is the preflight: whatever is missing, cut short or contradictory is found here, in
milliseconds, before a weight is read and without importing mlx.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from phyla.checkpoint.checkpoint import Checkpoint, TensorInfo
from phyla.checkpoint.files import open_file, read_json, read_json_if_present
from phyla.checkpoint.quantization import FP8_HINT, read_quantization
from phyla.checkpoint.shards import read_shards
from phyla.checkpoint.text_files import read_chat_templates, read_tokenizer
from phyla.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    import mlx.core as mx

_PREPROCESSING = (
    "preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json",
)  # fmt: skip
_UNREADABLE = frozenset(
    (
        *("F64", "F4", "F6_E2M3", "F6_E3M2"),
        *("F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"),
    )
)
# MLX reads these as bytes, which is what the scales of its mxfp and nvfp modes are.
_BYTE_SCALES = frozenset(("F8_E4M3", "F8_E8M0"))


def read_folder(folder: Path, *, name: str | None = None, partial: bool = False) -> Checkpoint:
    """Read a checkpoint folder by its headers.

    Args:
        folder: the folder that holds config.json.
        name: what to call it in reports; the folder's name if None.
        partial: whether there may be no weights.

    Raises:
        CheckpointError: a file is missing or broken, files disagree, or the weights are packed
            in a way that MLX has no form for.
    """
    config = _read_config(folder)
    # A separate file in which one exporter keeps what belongs into config.json.
    exported = read_json_if_present(folder / "hf_quant_config.json")
    quantization = read_quantization({"quantization_config": _modelopt(exported), **config})
    generation_config = read_json_if_present(folder / "generation_config.json")
    tokenizer_file = folder / "tokenizer.json"
    if tokenizer_file.is_file() or tokenizer_file.is_symlink():
        open_file(tokenizer_file).close()
    templates = read_chat_templates(folder)
    shards = read_shards(folder, optional=partial)
    _check_dtypes(shards.tensors.values())
    return Checkpoint(
        path=folder,
        name=name or folder.resolve().name,
        format="safetensors",
        config=config,
        generation_config=generation_config,
        tensors=shards.tensors,
        tokenizer=functools.partial(read_tokenizer, folder),
        chat_templates=templates,
        quantization=quantization.scheme,
        overrides=quantization.overrides,
        load=functools.partial(_load, shards.paths),
        preprocessing={
            name: content
            for name in _PREPROCESSING
            if (content := read_json_if_present(folder / name))
        },
    )


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    if not (path.is_file() or path.is_symlink()):
        ggufs = sorted(file.name for file in folder.glob("*.gguf"))
        raise CheckpointError(
            f"The folder {folder} has no config.json, so it is not a checkpoint.",
            file="config.json",
            found=f"{len(ggufs)} GGUF files" if ggufs else "no such file",
            expected="config.json",
            hint=f"Open the GGUF file itself: {folder / ggufs[0]}"
            if ggufs
            else "Name the folder that holds config.json and the *.safetensors files.",
        )
    config = read_json(path)
    model_type = config.get("model_type")
    if not (model_type is None or isinstance(model_type, str)):
        raise CheckpointError(
            f"config.json: 'model_type' should be a text, found {model_type!r}.",
            file="config.json",
            found=model_type,
            expected="a text",
            field="model_type",
            hint="Compare config.json with the published one.",
        )
    return config


def _modelopt(exported: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return {"quant_method": "modelopt"} if exported else None


def _check_dtypes(tensors: Iterable[TensorInfo]) -> None:
    for tensor in tensors:
        if tensor.name.endswith("_scale_inv"):
            raise CheckpointError(
                f"{tensor.file}: the tensor {tensor.name!r} is a scale of FP8 weights, which Phyla "
                "does not read.",
                file=tensor.file,
                found="FP8 weights",
                expected="F32, F16, BF16, or weights that MLX quantized",
                field=tensor.name,
                hint=FP8_HINT,
            )
        if tensor.dtype not in _UNREADABLE:
            continue
        if tensor.dtype in _BYTE_SCALES and tensor.name.endswith(".scales"):
            continue
        fp8 = tensor.dtype.startswith("F8")
        raise CheckpointError(
            f"{tensor.file}: the tensor {tensor.name!r} is stored as {tensor.dtype}"
            f"{' (FP8)' if fp8 else ''}, which MLX cannot compute with.",
            file=tensor.file,
            found=tensor.dtype,
            expected="F32, F16, BF16, or weights that MLX quantized",
            field=tensor.name,
            hint=FP8_HINT if fp8 else "Use an MLX conversion of the model, or its BF16 original.",
        )


def _load(paths: tuple[Path, ...]) -> dict[str, mx.array]:
    from phyla import backend

    backend.prepare()
    import mlx.core as mx

    tensors: dict[str, mx.array] = {}
    for path in paths:
        try:
            held = mx.load(str(path), format="safetensors")
        except (RuntimeError, OSError) as error:
            raise CheckpointError(
                f"{path.name} cannot be loaded: {error}.",
                file=path.name,
                found=str(error),
                expected="the file whose header was read",
                hint="The file was changed after it was opened; open the checkpoint again.",
            ) from error
        assert isinstance(held, dict)
        tensors.update(held)
    return tensors
