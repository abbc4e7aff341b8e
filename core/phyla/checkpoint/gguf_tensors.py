"""Turns GGUF's blocks into MLX's arrays, a tensor at a time.

Q4_0, Q4_1 and Q8_0 become MLX's affine layout of group size 32, without loss: a block
`d * (q - 8)`, `d * q + m` or `d * q` is `scale * q + bias` with the same float16 `d`. The other block
types are unpacked by the `gguf` package.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from phyla.checkpoint.checkpoint import QuantizationScheme, TensorInfo

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import mlx.core as mx
    from numpy.typing import NDArray

    from phyla.checkpoint.gguf_header import GgufTensor

_GROUP = 32
_BITS = {"Q4_0": 4, "Q4_1": 4, "Q8_0": 8}
_BLOCKS = {
    "Q4_0": np.dtype([("d", "<f2"), ("q", "V16")]),
    "Q4_1": np.dtype([("d", "<f2"), ("m", "<f2"), ("q", "V16")]),
    "Q8_0": np.dtype([("d", "<f2"), ("q", "V32")]),
}

# Rows are unpacked in pieces of about this many values, to bound the temporary arrays.
_UNPACK_VALUES = 4 * 2**20


@dataclass(frozen=True)
class TensorPart:
    """One array that a tensor of the file becomes.

    Attributes:
        tensor: where it lies.
        part: the array of a packed tensor, or all of an unpacked one.
        heads: the rows of query and key projections interleave the two halves of each head; the
            number of heads, to put them back, or None to leave the rows alone.
    """

    tensor: GgufTensor
    part: Literal["whole", "weight", "scales", "biases"] = "whole"
    heads: int | None = None


def scheme_of(tensor: GgufTensor) -> QuantizationScheme | None:
    """The MLX layout that a tensor keeps, or None if it is unpacked."""
    bits = _BITS.get(tensor.type.name)
    return None if bits is None or len(tensor.shape) < 2 else QuantizationScheme(bits, _GROUP)


def arrays_of(
    tensor: GgufTensor, name: str, file: str, heads: int | None
) -> list[tuple[TensorInfo, TensorPart]]:
    """The arrays that a tensor becomes under `name`, described in MLX's layout."""
    scheme = scheme_of(tensor)
    if scheme is None:
        info = TensorInfo(name, tensor.shape, tensor.type.name, tensor.nbytes, file)
        return [(info, TensorPart(tensor, heads=heads))]
    path = name.removesuffix(".weight")
    *lead, width = tensor.shape
    columns, groups = width * scheme.bits // 32, width // _GROUP
    rows = int(np.prod(lead))
    return [
        (
            TensorInfo(f"{path}.weight", (*lead, columns), "U32", rows * columns * 4, file),
            TensorPart(tensor, "weight", heads),
        ),
        (
            TensorInfo(f"{path}.scales", (*lead, groups), "F16", rows * groups * 2, file),
            TensorPart(tensor, "scales", heads),
        ),
        (
            TensorInfo(f"{path}.biases", (*lead, groups), "F16", rows * groups * 2, file),
            TensorPart(tensor, "biases", heads),
        ),
    ]


class GgufTensors:
    """The file's tensors, mapped into memory and converted when they are taken out."""

    def __init__(self, path: Path, parts: Mapping[str, TensorPart]) -> None:
        self._bytes = np.asarray(np.memmap(path, dtype=np.uint8, mode="r"))
        self._parts = parts

    def pop(self, name: str, /) -> mx.array:
        """Read and convert one tensor."""
        import mlx.core as mx

        piece = self._parts[name]
        tensor = piece.tensor
        rows = self._rows(piece)
        lead = tensor.shape[:-1]
        match piece.part:
            case "weight":
                return mx.array(_packed(rows, tensor.type.name).reshape(*lead, -1))
            case "scales" | "biases":
                return mx.array(_affine(rows, tensor.type.name, piece.part).reshape(*lead, -1))
            case "whole":
                if tensor.type.name == "BF16":
                    words = rows.view(np.uint16).reshape(tensor.shape)
                    return mx.array(words).view(mx.bfloat16)
                return mx.array(_unpacked(rows, tensor).reshape(tensor.shape))

    def _rows(self, piece: TensorPart) -> NDArray[np.uint8]:
        """The tensor's bytes, `[rows, bytes per row]`, a vector's values being its rows."""
        tensor = piece.tensor
        raw = self._bytes[tensor.offset : tensor.offset + tensor.nbytes]
        if len(tensor.shape) == 1 and piece.heads is not None:
            raw = raw.reshape(tensor.shape[0], -1)
        else:
            raw = raw.reshape(int(np.prod(tensor.shape[:-1])), -1)
        if piece.heads is None:
            return raw
        count, width = raw.shape
        by_head = raw.reshape(piece.heads, count // piece.heads // 2, 2, width)
        return by_head.swapaxes(1, 2).reshape(count, width)


def _packed(rows: NDArray[np.uint8], kind: str) -> NDArray[np.uint32]:
    """MLX's words: values packed from the low bits, in order."""
    values = np.ascontiguousarray(rows.view(_BLOCKS[kind])["q"])
    if kind == "Q8_0":
        # int8 + 128, as one bit flipped in each byte.
        return np.bitwise_xor(values.view(np.uint32), 0x80808080).reshape(len(rows), -1)
    # Byte j holds value j in its low half and value j + 16 in its high half; MLX wants 2j, 2j + 1.
    pairs = values.view(np.uint16).reshape(-1, 8)
    packed = np.empty((len(pairs), 2), np.uint64)
    low = ((pairs & 0x0F) | ((pairs >> 4) & 0xF0)).astype(np.uint8)
    packed[:, 0] = low.view(np.uint64)[:, 0]
    high = (((pairs >> 4) & 0x0F) | ((pairs >> 8) & 0xF0)).astype(np.uint8)
    packed[:, 1] = high.view(np.uint64)[:, 0]
    return packed.view(np.uint32).reshape(len(rows), -1)


def _affine(
    rows: NDArray[np.uint8], kind: str, part: Literal["scales", "biases"]
) -> NDArray[np.float16] | NDArray[np.float32]:
    """The scales or biases, `[rows, groups]`."""
    blocks = rows.view(_BLOCKS[kind])
    if part == "scales":
        return np.ascontiguousarray(blocks["d"])
    if kind == "Q4_1":
        return np.ascontiguousarray(blocks["m"])
    zero = np.float32(-8 if kind == "Q4_0" else -128)
    # A product with a power of two is exact in float16 unless it overflows.
    biases = blocks["d"].astype(np.float32) * zero
    fits = np.abs(biases).max(initial=0) <= np.finfo(np.float16).max
    return biases.astype(np.float16) if fits else biases


def _unpacked(rows: NDArray[np.uint8], tensor: GgufTensor) -> NDArray[np.float16 | np.float32]:
    kind = tensor.type.name
    if kind == "F32":
        return rows.view(np.float32)
    if kind == "F16":
        return rows.view(np.float16)
    import gguf

    block = gguf.GGMLQuantizationType[kind]
    width = tensor.shape[-1]
    values = np.empty((len(rows), width), np.float32)
    step = max(1, _UNPACK_VALUES // width)
    for start in range(0, len(rows), step):
        piece = np.ascontiguousarray(rows[start : start + step])
        values[start : start + step] = gguf.dequantize(piece, block)
    return values
