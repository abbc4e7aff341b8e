"""Reads a GGUF file as a checkpoint: as if it were a folder in the Hugging Face layout.

Known architectures: llama, qwen3, qwen3moe, minicpm. Others keep their name as the model type, so
that a family from elsewhere may take them or the registry can say that none does.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from phyla.checkpoint.checkpoint import (
    Checkpoint,
    QuantizationScheme,
    TensorInfo,
    TokenizerData,
)
from phyla.checkpoint.gguf_config import (
    architecture,
    is_factors,
    read_config,
    read_factors,
    read_generation_config,
    read_templates,
)
from phyla.checkpoint.gguf_header import GgufHeader, read_header
from phyla.checkpoint.gguf_names import hugging_face_name, interleaved_heads
from phyla.checkpoint.gguf_tensors import GgufTensors, TensorPart, arrays_of, scheme_of
from phyla.checkpoint.gguf_tokenizer import read_tokenizer
from phyla.errors import CheckpointError

if TYPE_CHECKING:
    from pathlib import Path


def read_gguf(path: Path) -> Checkpoint:
    """Read a GGUF file's header; tensors and tokenizer are read when they are asked for.

    Raises:
        CheckpointError: the file is missing, empty, truncated, one piece of several, or of a kind
            that cannot be read; names the file, found, expected and the next step.
    """
    header = read_header(path)
    _refuse_pieces(header)
    config = read_config(header, read_factors(header))
    heads, kv_heads = config.get("num_attention_heads", 1), config.get("num_key_value_heads", 1)

    infos: dict[str, TensorInfo] = {}
    parts: dict[str, TensorPart] = {}
    schemes: dict[str, QuantizationScheme] = {}
    for tensor in header.tensors.values():
        if is_factors(tensor):
            continue
        name = hugging_face_name(tensor.name)
        interleaved = interleaved_heads(tensor.name, architecture(header), heads, kv_heads)
        if interleaved is not None and tensor.shape[0] % (2 * interleaved):
            raise CheckpointError(
                f"{path.name}: {tensor.name!r} of shape {list(tensor.shape)} does not divide into "
                f"{interleaved} heads.",
                file=path.name,
                field=tensor.name,
                found=tensor.shape,
                expected=f"rows a multiple of {2 * interleaved}",
            )
        for info, part in arrays_of(tensor, name, path.name, interleaved):
            infos[info.name], parts[info.name] = info, part
        if (scheme := scheme_of(tensor)) is not None:
            schemes[name.removesuffix(".weight")] = scheme

    usual = Counter(schemes.values()).most_common(1)
    quantization = usual[0][0] if usual else None

    def tokenizer() -> TokenizerData:
        return read_tokenizer(header)

    def load() -> GgufTensors:
        return GgufTensors(path, parts)

    return Checkpoint(
        path=path,
        name=path.stem,
        format="gguf",
        config=config,
        generation_config=read_generation_config(header),
        tensors=infos,
        tokenizer=tokenizer,
        chat_templates=read_templates(header),
        quantization=quantization,
        overrides={path: each for path, each in schemes.items() if each != quantization},
        load=load,
    )


def _refuse_pieces(header: GgufHeader) -> None:
    count = header.metadata.get("split.count", 0)
    if isinstance(count, int) and count > 1:
        raise CheckpointError(
            f"{header.path.name} is one of {count} pieces of a model.",
            file=header.path.name,
            field="split.count",
            found=count,
            expected="a model in one file",
            hint="Join the pieces with `llama-gguf-split --merge`.",
        )
