"""Vectors along time in reserved buffers, plain or quantized. Knows nothing of attention.

MLX arrays behave as values: a buffer is written in place only while nobody else holds it, and is
copied otherwise. So two tapes may hold one buffer, and the first that writes gets its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import mlx.core as mx

if TYPE_CHECKING:
    from collections.abc import Sequence

    from phyla.kv_quantization import Quantized

# Buffers grow by at least this many tokens, and by half, so that growing stays rare.
BLOCK = 256


class Codec(Protocol):
    """How vectors are kept: an array is written as one or more arrays with the same time axis."""

    def encode(self, vectors: mx.array) -> tuple[mx.array, ...]:
        """`[1, heads, T, dim]` to what is kept of it, each `[1, heads, T, ...]`."""
        ...

    def decode(self, parts: Sequence[mx.array]) -> mx.array:
        """The vectors again, as near as what is kept tells."""
        ...

    def token_bytes(self, dim: int, itemsize: int) -> int:
        """Bytes that one vector of `dim` values takes, whose values have `itemsize` bytes each."""
        ...


@dataclass(frozen=True)
class Plain:
    """Vectors as they are."""

    def encode(self, vectors: mx.array) -> tuple[mx.array, ...]:
        return (vectors,)

    def decode(self, parts: Sequence[mx.array]) -> mx.array:
        return parts[0]

    def token_bytes(self, dim: int, itemsize: int) -> int:
        return dim * itemsize


PLAIN = Plain()


@dataclass(frozen=True)
class Affine:
    """MLX's affine quantization: groups of `group_size` values share a scale and a bias.

    A head whose width is no multiple of the group is filled up with zeros.
    """

    dim: int
    bits: int
    group_size: int

    def encode(self, vectors: mx.array) -> tuple[mx.array, ...]:
        missing = -self.dim % self.group_size
        if missing:
            vectors = mx.pad(vectors, [(0, 0)] * 3 + [(0, missing)])
        packed, scales, biases = mx.quantize(vectors, group_size=self.group_size, bits=self.bits)
        return packed, scales, biases

    def decode(self, parts: Sequence[mx.array]) -> mx.array:
        packed, scales, biases = parts
        vectors = mx.dequantize(packed, scales, biases, group_size=self.group_size, bits=self.bits)
        return vectors if vectors.shape[3] == self.dim else vectors[..., : self.dim]

    def token_bytes(self, dim: int, itemsize: int) -> int:
        groups = -(-dim // self.group_size)
        return groups * (self.group_size * self.bits // 8 + 2 * itemsize)


def codec(dim: int, quantized: Quantized | None) -> Codec:
    """How to keep vectors of `dim` values."""
    if quantized is None:
        return PLAIN
    return Affine(dim, quantized.bits, quantized.group_size)


class Tape:
    """Vectors `[1, heads, count, dim]` in buffers with room for more.

    It does not know how much of it is in use; whoever writes does.
    """

    def __init__(self, codec: Codec, parts: Sequence[mx.array] = ()) -> None:
        self._codec = codec
        self._parts = list(parts)

    @property
    def capacity(self) -> int:
        """How many vectors the buffers have room for."""
        return self._parts[0].shape[2] if self._parts else 0

    def write(self, at: int, vectors: mx.array) -> None:
        """Write behind the first `at` vectors; there must be room."""
        end = at + vectors.shape[2]
        for part, new in zip(self._parts, self._codec.encode(vectors), strict=True):
            part[:, :, at:end] = new

    def read(self, start: int, stop: int) -> mx.array:
        """The vectors from `start` up to `stop`."""
        return self._codec.decode([part[:, :, start:stop] for part in self._parts])

    def resize(self, start: int, stop: int, capacity: int, like: mx.array) -> None:
        """Keep the vectors from `start` up to `stop`, in new buffers of this capacity.

        `like` is any array of vectors, from which first buffers take their shapes and types.
        """
        if not self._parts:
            start = stop = 0
            self._parts = [part[:, :, :0] for part in self._codec.encode(like[:, :, :1])]
        self._parts = [
            mx.concatenate(
                [part[:, :, start:stop], _blank(part, capacity - (stop - start))], axis=2
            )
            for part in self._parts
        ]

    def window(self, start: int, stop: int) -> Tape:
        """A tape of the vectors from `start` up to `stop`, which shares their memory."""
        return Tape(self._codec, [part[:, :, start:stop] for part in self._parts])

    def copy(self, start: int, stop: int) -> Tape:
        """A tape of the vectors from `start` up to `stop`, with memory of its own once evaluated."""
        return Tape(self._codec, [own(part[:, :, start:stop]) for part in self._parts])

    def alias(self) -> Tape:
        """The same tape; what is written to one is not seen by the other."""
        return Tape(self._codec, [part[...] for part in self._parts])

    @property
    def arrays(self) -> list[mx.array]:
        """The buffers, for evaluation."""
        return self._parts

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self._parts)


def own(array: mx.array) -> mx.array:
    """The same values in memory of their own, once evaluated; a view would keep its source alive."""
    return array + mx.zeros((), dtype=array.dtype)


def _blank(part: mx.array, count: int) -> mx.array:
    rows, heads, _, width = part.shape
    return mx.zeros((rows, heads, count, width), part.dtype)
