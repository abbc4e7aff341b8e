"""Checks what a caller appends to a session, and reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import mlx.core as mx
import numpy as np

from phyla.errors import RequestError
from phyla.messages import Audio, Image, Video, read_messages
from phyla.validation import shown

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

_M = TypeVar("_M", Image, Audio, Video)


def read_block(kind: type[_M], **fields: object) -> _M:
    """A block for a medium that was passed as arguments.

    Raises:
        RequestError: one of them is out of range.
    """
    message = {"role": "user", "content": [{"type": kind.__name__.lower(), **fields}]}
    block = read_messages(message)[0].media[0]
    assert isinstance(block, kind)
    return block


def read_embeddings(values: ArrayLike | mx.array, width: int) -> NDArray[np.float32]:
    """Hidden states `[T, width]` in memory of their own.

    Raises:
        RequestError: the array has another shape, or holds what is no number.
    """
    floats = _floats(values)
    if floats.ndim != 2 or floats.shape[1] != width or not len(floats):
        raise RequestError(
            f"embeddings should have the shape [T, {width}]; found {list(floats.shape)}.",
            field="embeddings",
            expected=f"[T, {width}]",
            found=tuple(floats.shape),
        )
    return floats


def _floats(values: ArrayLike | mx.array) -> NDArray[np.float32]:
    if isinstance(values, mx.array):
        values = np.array(values if values.dtype == mx.complex64 else values.astype(mx.float32))
    try:
        listed = np.asarray(values)
        if listed.dtype.kind not in "biuf":
            raise TypeError
        floats = np.array(listed, dtype=np.float32)
        if np.isfinite(floats).all():
            return floats
    except (TypeError, ValueError):
        pass
    raise RequestError(
        f"embeddings should be an array of numbers; found {shown(values)}.",
        field="embeddings",
        expected="[T, D]",
        found=values,
    )
