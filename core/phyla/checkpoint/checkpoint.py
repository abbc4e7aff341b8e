"""What a checkpoint is, once its headers are read; safetensors folders and GGUF files alike.

Knows no family. Nothing here imports mlx until tensors are loaded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import mlx.core as mx


@dataclass(frozen=True)
class TensorInfo:
    """A tensor as its file's header describes it; `dtype` in safetensors' or GGUF's spelling."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    file: str


class TensorStore(Protocol):
    """The tensors of an opened checkpoint, each to be taken out once (a dict is one)."""

    def pop(self, name: str, /) -> mx.array:
        """Take a tensor out; its bytes are read now, or when the array is evaluated."""
        ...


@dataclass(frozen=True)
class QuantizationScheme:
    """How a layer's weights are packed, in MLX's terms."""

    bits: int
    group_size: int
    mode: Literal["affine", "mxfp4", "mxfp8", "nvfp4"] = "affine"


@dataclass(frozen=True, kw_only=True)
class TokenizerData:
    """What is needed to build a tokenizer.

    Attributes:
        json: the text of tokenizer.json (made from the metadata for a GGUF file).
        config: tokenizer_config.json, or what stands for it.
        special_tokens: `bos_token`, `eos_token` and so on, as texts.
    """

    json: str
    config: Mapping[str, Any] = field(default_factory=dict)
    special_tokens: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A model's files, read as far as their headers.

    Attributes:
        path: the folder, or the GGUF file.
        name: what to call it in reports.
        format: how the weights are stored.
        config: config.json as written (made from the metadata for a GGUF file).
        generation_config: generation_config.json, empty if there is none.
        tensors: every tensor by name, in the names of the Hugging Face or MLX layout.
        tokenizer: reads the tokenizer's files; raises CheckpointError when there are none.
        chat_templates: templates by name; the usual one is `default`.
        quantization: the scheme of layers that `overrides` does not name, or None.
        overrides: schemes of single layers, by module path in the checkpoint's own names; None
            stands for a layer left unquantized.
        load: opens all tensors, by name; nothing is read before a tensor is taken out.
        preprocessing: what the files that say how media are prepared hold, by file name
            (`preprocessor_config.json`, `processor_config.json`, `video_preprocessor_config.json`);
            a file that is absent is absent here.
    """

    path: Path
    name: str
    format: Literal["safetensors", "gguf"]
    config: Mapping[str, Any]
    generation_config: Mapping[str, Any]
    tensors: Mapping[str, TensorInfo]
    tokenizer: Callable[[], TokenizerData]
    chat_templates: Mapping[str, str]
    quantization: QuantizationScheme | None
    overrides: Mapping[str, QuantizationScheme | None]
    load: Callable[[], TensorStore]
    preprocessing: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def model_type(self) -> str | None:
        """config.json's `model_type`."""
        return self.config.get("model_type")

    @property
    def chat_template(self) -> str | None:
        """The usual chat template, or None."""
        return self.chat_templates.get("default")

    @property
    def nbytes(self) -> int:
        """The size of all tensors in bytes, as stored."""
        return sum(tensor.nbytes for tensor in self.tensors.values())
