"""Reads the header of a GGUF file: metadata and where each tensor lies. Knows no architecture.

The format is llama.cpp's (ggml/docs/gguf.md), versions 2 and 3, little-endian. The `gguf` package
reads it too, but takes seconds for a vocabulary of 50,000, since it makes an array of each string.
"""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from phyla.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Value: TypeAlias = bool | int | float | str | list[Any]

_LFS_POINTER = b"version https://git-lfs"
_AGAIN = "Download the file again."


@dataclass(frozen=True)
class BlockType:
    """A tensor type: `values` numbers take `nbytes` bytes."""

    name: str
    values: int
    nbytes: int


# Those that can be read; a type that is only named below is refused by that name.
BLOCK_TYPES = {
    0: BlockType("F32", 1, 4),
    1: BlockType("F16", 1, 2),
    2: BlockType("Q4_0", 32, 18),
    3: BlockType("Q4_1", 32, 20),
    6: BlockType("Q5_0", 32, 22),
    7: BlockType("Q5_1", 32, 24),
    8: BlockType("Q8_0", 32, 34),
    10: BlockType("Q2_K", 256, 84),
    11: BlockType("Q3_K", 256, 110),
    12: BlockType("Q4_K", 256, 144),
    13: BlockType("Q5_K", 256, 176),
    14: BlockType("Q6_K", 256, 210),
    30: BlockType("BF16", 1, 2),
}
_OTHER_TYPES = {
    9: "Q8_1",
    15: "Q8_K",
    16: "IQ2_XXS",
    17: "IQ2_XS",
    18: "IQ3_XXS",
    19: "IQ1_S",
    20: "IQ4_NL",
    21: "IQ3_S",
    22: "IQ2_S",
    23: "IQ4_XS",
    24: "I8",
    25: "I16",
    26: "I32",
    27: "I64",
    28: "F64",
    29: "IQ1_M",
    34: "TQ1_0",
    35: "TQ2_0",
    39: "MXFP4",
    40: "NVFP4",
}


@dataclass(frozen=True)
class GgufTensor:
    """A tensor in the file; `shape` is row-major, `offset` counts from the file's start."""

    name: str
    shape: tuple[int, ...]
    type: BlockType
    offset: int
    nbytes: int


@dataclass(frozen=True)
class GgufHeader:
    """What a GGUF file says of itself."""

    path: Path
    metadata: Mapping[str, Value]
    tensors: Mapping[str, GgufTensor]


def read_header(path: Path) -> GgufHeader:
    """Read and check the header; no tensor is read.

    Raises:
        CheckpointError: the file is missing, empty, truncated, a Git LFS pointer, of another format
            or version, or holds a tensor of a type that cannot be read.
    """
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            if size == 0:
                raise _broken(path, "is empty.", found="0 bytes", hint=_AGAIN)
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _Parser(path, data).header()
    except OSError as error:
        raise _broken(
            path, f"cannot be read: {error.strerror}.", found=error.strerror, hint="Check the path."
        ) from None


def _broken(
    path: Path, what: str, *, found: object, expected: object = "a GGUF file", hint: str
) -> CheckpointError:
    return CheckpointError(
        f"{path.name} {what}", file=path.name, found=found, expected=expected, hint=hint
    )


_SCALARS = {
    0: np.dtype("<u1"),
    1: np.dtype("<i1"),
    2: np.dtype("<u2"),
    3: np.dtype("<i2"),
    4: np.dtype("<u4"),
    5: np.dtype("<i4"),
    6: np.dtype("<f4"),
    7: np.dtype("?"),
    10: np.dtype("<u8"),
    11: np.dtype("<i8"),
    12: np.dtype("<f8"),
}
_STRING, _ARRAY = 8, 9
_MAX_RANK = 4  # GGML_MAX_DIMS
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")


class _Parser:
    """Walks the header once; every read is checked against the end of the file."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self._path, self._data, self._at = path, data, 0

    def header(self) -> GgufHeader:
        self._check_magic()
        try:
            tensor_count, key_count = self._u64(), self._u64()
            metadata: dict[str, Value] = {}
            for _ in range(key_count):
                key = self._string()
                metadata[key] = self._value(self._u32())
            described = [self._describe() for _ in range(tensor_count)]
        except (struct.error, OverflowError):
            raise self._truncated("its header") from None
        return GgufHeader(self._path, metadata, self._locate(described, metadata))

    def _check_magic(self) -> None:
        start = bytes(self._data[: len(_LFS_POINTER)])
        if start == _LFS_POINTER:
            raise _broken(
                self._path,
                "is a Git LFS pointer, not the file it points to.",
                found="a Git LFS pointer",
                hint="Run `git lfs pull`, or download the file itself.",
            )
        if start[:4] != b"GGUF":
            raise _broken(
                self._path,
                f"does not start with the letters GGUF but with {start[:4]!r}.",
                found=start[:4],
                hint=_AGAIN,
            )
        if len(self._data) < 8:
            raise self._truncated("its header")
        self._at = 4
        version = self._u32()
        if version not in (2, 3):
            swapped = int.from_bytes(version.to_bytes(4, "big"), "little")
            kind = f"big-endian version {swapped}" if swapped in (2, 3) else f"version {version}"
            raise _broken(
                self._path,
                f"is a GGUF file of {kind}; versions 2 and 3, little-endian, can be read.",
                found=kind,
                expected="version 2 or 3",
                hint="Convert the model again with a current llama.cpp.",
            )

    def _truncated(self, within: str) -> CheckpointError:
        size = len(self._data)
        return _broken(
            self._path,
            f"ends within {within}, after {size} bytes.",
            found=f"{size} bytes",
            expected="more bytes",
            hint=_AGAIN,
        )

    def _u32(self) -> int:
        (value,) = _U32.unpack_from(self._data, self._at)
        self._at += 4
        return value

    def _u64(self) -> int:
        (value,) = _U64.unpack_from(self._data, self._at)
        self._at += 8
        return value

    def _string(self) -> str:
        return self._strings(1)[0]

    def _strings(self, count: int) -> list[str]:
        # The hot loop: a vocabulary and its merges are some 100,000 strings.
        data, at, unpack, texts = self._data, self._at, _U64.unpack_from, []
        for _ in range(count):
            start = at + 8
            at = start + unpack(data, at)[0]
            texts.append(data[start:at].decode("utf-8", "replace"))
        self._at = at
        self._within(0)
        return texts

    def _within(self, length: int) -> None:
        if self._at + length > len(self._data):
            raise struct.error

    def _value(self, kind: int, depth: int = 0) -> Value:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            return self._array(depth)
        return self._numbers(kind, 1)[0]

    def _array(self, depth: int) -> Value:
        kind, count = self._u32(), self._u64()
        if kind == _STRING:
            return self._strings(count)
        if kind == _ARRAY and depth < 4:
            return [self._array(depth + 1) for _ in range(count)]
        return self._numbers(kind, count)

    def _numbers(self, kind: int, count: int) -> list[Any]:
        dtype = _SCALARS.get(kind)
        if dtype is None:
            raise _broken(
                self._path,
                f"holds a metadata value of the unknown type {kind}.",
                found=kind,
                expected=f"one of {sorted([*_SCALARS, _STRING, _ARRAY])}",
                hint="The file is damaged, or of a newer format; download it again.",
            )
        length = count * dtype.itemsize
        self._within(length)
        values = np.frombuffer(self._data[self._at : self._at + length], dtype)
        self._at += length
        if kind == 6:
            # The shortest decimal that rounds to the float32: 1e-05, not 9.999999747378752e-06.
            return [float(str(value)) for value in values]
        return values.tolist()

    def _describe(self) -> tuple[str, tuple[int, ...], int, int]:
        name, rank = self._string(), self._u32()
        if rank > _MAX_RANK:
            raise _broken(
                self._path,
                f"holds the tensor {name!r} with {rank} axes.",
                found=rank,
                expected=f"at most {_MAX_RANK}",
                hint=_AGAIN,
            )
        shape = tuple(self._u64() for _ in range(rank))
        return name, shape[::-1], self._u32(), self._u64()

    def _locate(
        self,
        described: list[tuple[str, tuple[int, ...], int, int]],
        metadata: Mapping[str, Value],
    ) -> dict[str, GgufTensor]:
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1:
            raise _broken(
                self._path,
                f"has the alignment {alignment!r}.",
                found=alignment,
                expected="a power of two",
                hint=_AGAIN,
            )
        start = -(-self._at // alignment) * alignment
        tensors: dict[str, GgufTensor] = {}
        for name, shape, kind, offset in described:
            block = BLOCK_TYPES.get(kind)
            if block is None:
                found = _OTHER_TYPES.get(kind, f"number {kind}")
                raise _broken(
                    self._path,
                    f"holds the tensor {name!r} in the type {found}, which cannot be read.",
                    found=found,
                    expected=", ".join(each.name for each in BLOCK_TYPES.values()),
                    hint="Take another quantization of the model, such as Q4_0, Q8_0 or Q4_K_M.",
                )
            values = math.prod(shape)
            if not shape or shape[-1] % block.values:
                raise _broken(
                    self._path,
                    f"holds the tensor {name!r} of shape {list(shape)} in the type {block.name}, "
                    f"whose blocks take {block.values} values.",
                    found=shape,
                    expected=f"a multiple of {block.values} in the last axis",
                    hint=_AGAIN,
                )
            tensor = GgufTensor(
                name, shape, block, start + offset, values // block.values * block.nbytes
            )
            end, size = tensor.offset + tensor.nbytes, len(self._data)
            if end > size:
                raise _broken(
                    self._path,
                    f"is truncated: its tensor {name!r} ends at byte {end}, the file at {size}.",
                    found=f"{size} bytes",
                    expected=f"at least {end} bytes",
                    hint=_AGAIN,
                )
            tensors[name] = tensor
        return tensors
