"""Chooses what MLX computes with: loads a fast BLAS before MLX on a Linux CPU, and names the device.

On Linux the MLX wheel links the reference BLAS, 20 to 30 times slower than MKL on a matrix product.
The dynamic linker lets a library opened earlier and globally answer for its symbols, so opening MKL
before `mlx.core` is imported is enough; afterwards it is too late.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Literal

BlasName = Literal["mkl", "bundled"]


def _mkl_runtime() -> Path | None:
    try:
        files = metadata.files("mkl") or []
    except metadata.PackageNotFoundError:
        return None
    for file in files:
        if file.name.startswith("libmkl_rt.so"):
            path = Path(str(file.locate())).resolve()
            if path.is_file():
                return path
    return None


@functools.cache
def prepare() -> BlasName:
    """Load the fast BLAS if there is one and MLX is not imported yet; idempotent and thread-safe.

    Set `PHYLA_BLAS=bundled` to keep the BLAS that comes with MLX.
    """
    wanted = os.environ.get("PHYLA_BLAS", "mkl") != "bundled"
    on_linux_x86 = sys.platform == "linux" and platform.machine() == "x86_64"
    if not (wanted and on_linux_x86) or "mlx.core" in sys.modules:
        return "bundled"
    runtime = _mkl_runtime()
    if runtime is None:
        return "bundled"
    try:
        ctypes.CDLL(str(runtime), mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return "bundled"
    return "mkl"


def on_cpu() -> bool:
    """Whether MLX computes on the CPU in this process."""
    prepare()
    import mlx.core as mx

    return mx.default_device() == mx.Device(mx.cpu)
