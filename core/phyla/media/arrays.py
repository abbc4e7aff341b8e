"""Tells arrays from other sources, and makes numpy arrays of them. Imports MLX for none but MLX's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

if TYPE_CHECKING:
    import mlx.core as mx
    from numpy.typing import NDArray


def as_array(source: object) -> NDArray[Any] | None:
    """A copy of a numpy or MLX array, which its owner may go on changing; None for other things."""
    if isinstance(source, np.ndarray):
        return np.array(source)
    kind = type(source)
    if kind.__module__.split(".")[0] == "mlx" and kind.__name__ == "array":
        import mlx.core as mx

        array = cast("mx.array", source)
        # numpy has no bfloat16.
        return np.array(array.astype(mx.float32) if array.dtype == mx.bfloat16 else array)
    return None
