"""Random weights that depend on a tensor's name, its shape and a seed, and on nothing else.

Made from raw bits, whose stream NumPy keeps the same for ever, so that a reference model and a
golden file of years ago see the same numbers.
"""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def random_tensor(name: str, shape: tuple[int, ...], *, seed: int = 0) -> NDArray[np.float32]:
    """A tensor `shape` of float32 values that make a model whose parts all matter.

    Biases and norm weights lie around 0 and 1 but well away from them, so that one left out shows;
    embeddings have a variance of 1, and matrices keep the variance of what they multiply.
    """
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    bits = np.random.PCG64(int.from_bytes(digest[:16], "little")).random_raw(math.prod(shape))
    unit = (np.asarray(bits, np.uint64) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    centred = (unit - 0.5).reshape(shape)
    if name.endswith("bias"):
        values = centred
    elif len(shape) <= 1:
        values = 1.0 + centred
    else:
        # Uniform between -1/2 and 1/2 has a variance of 1/12.
        deviation = 1.0 if "embed" in name else shape[-1] ** -0.5
        values = centred * math.sqrt(12) * deviation
    return values.astype(np.float32)
