"""Reads the header of a safetensors file and checks it against the file's size.

The layout: 8 bytes of header length (little-endian), the header as JSON (tensor name to dtype,
shape and byte range, counted from the header's end), then the data without a gap
(https://github.com/huggingface/safetensors#format). Reads no weight and does not import mlx.
"""

from __future__ import annotations

import json
import math
import os
from typing import TYPE_CHECKING, Any

from phyla.checkpoint.checkpoint import TensorInfo
from phyla.checkpoint.files import download_again, open_file
from phyla.errors import CheckpointError

if TYPE_CHECKING:
    from pathlib import Path

# The format's own limit; a longer one is read from a file that is no safetensors file.
_LONGEST_HEADER = 100_000_000

_BITS = {
    **dict.fromkeys(("F4",), 4),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 8),
    **dict.fromkeys(("F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 16),
    **dict.fromkeys(("U32", "I32", "F32"), 32),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 64),
}


def read_header(path: Path) -> dict[str, TensorInfo]:
    """Read which tensors a safetensors file holds.

    Raises:
        CheckpointError: the file is absent, empty, a Git LFS pointer, no safetensors file,
            truncated, too long, or its header contradicts itself.
    """
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        start = file.read(8)
        length = int.from_bytes(start, "little")
        if len(start) < 8 or length > _LONGEST_HEADER or file.peek(1)[:1] not in (b"{", b""):
            raise _not_safetensors(path, start + file.peek(16)[:8])
        if 8 + length > size:
            raise CheckpointError(
                f"{path.name} is truncated within its header: found {size} bytes, "
                f"expected more than {8 + length}.",
                file=path.name,
                found=size,
                expected=8 + length,
                hint=download_again(path),
            )
        text = file.read(length)
    try:
        header = json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise _bad_header(path, f"it is not JSON ({error})") from error
    if not isinstance(header, dict):
        raise _bad_header(path, f"it is {type(header).__name__}, not an object")
    header.pop("__metadata__", None)
    ranges, tensors = [], {}
    for name, entry in header.items():
        tensor, begin = _tensor(path, name, entry)
        tensors[name] = tensor
        ranges.append((begin, begin + tensor.nbytes, name))
    _check_ranges(path, sorted(ranges), held=size - 8 - length, before=8 + length)
    return tensors


def _tensor(path: Path, name: str, entry: Any) -> tuple[TensorInfo, int]:
    try:
        dtype, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
    except (TypeError, KeyError, ValueError) as error:
        reason = f"tensor {name!r} lacks a dtype, a shape or two offsets"
        raise _bad_header(path, reason) from error
    bits = _BITS.get(dtype) if isinstance(dtype, str) else None
    if bits is None:
        raise _bad_header(path, f"tensor {name!r} has the unknown dtype {dtype!r}")
    if not isinstance(shape, list):
        raise _bad_header(path, f"tensor {name!r} has the shape {shape!r}")
    for number in (*shape, begin, end):
        if type(number) is not int or number < 0:  # a JSON true is a Python int, but no length
            raise _bad_header(path, f"tensor {name!r} has {number!r} where a length should be")
    nbytes, rest = divmod(math.prod(shape) * bits, 8)
    if rest or nbytes != end - begin:
        raise _bad_header(
            path,
            f"tensor {name!r} of shape {shape} in {dtype} takes {nbytes} bytes, "
            f"but its byte range has {end - begin}",
            found=end - begin,
            expected=nbytes,
        )
    return TensorInfo(name, tuple(shape), dtype, nbytes, path.name), begin


def _check_ranges(
    path: Path, ranges: list[tuple[int, int, str]], *, held: int, before: int
) -> None:
    """Check that the ranges follow one another without gap or overlap and fill the file."""
    reached = 0
    for begin, end, name in ranges:
        if begin != reached:
            raise _bad_header(
                path,
                f"tensor {name!r} begins at byte {begin} of the data, where {reached} was due",
                found=begin,
                expected=reached,
            )
        reached = end
    if held != reached:
        wrong = "is truncated" if held < reached else "is longer than its header says"
        raise CheckpointError(
            f"{path.name} {wrong}: found {before + held} bytes, expected {before + reached}.",
            file=path.name,
            found=before + held,
            expected=before + reached,
            hint=download_again(path),
        )


def _not_safetensors(path: Path, start: bytes) -> CheckpointError:
    return CheckpointError(
        f"{path.name} is not a safetensors file: it begins with {start!r}.",
        file=path.name,
        found=start,
        expected="a header length of 8 bytes and a JSON object",
        hint=download_again(path),
    )


def _bad_header(
    path: Path, reason: str, *, found: object = None, expected: object = None
) -> CheckpointError:
    return CheckpointError(
        f"{path.name} has a broken header: {reason}.",
        file=path.name,
        found=reason if found is None else found,
        expected="a valid safetensors header" if expected is None else expected,
        hint=download_again(path),
    )
