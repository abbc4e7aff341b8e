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
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

    import mlx.core as mx

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


class BlasThreads:
    """How many threads the BLAS multiplies with; a setting of the whole process.

    A product by one row is bound by memory, which fewer cores than all keep busy. If all of them
    take part, the thread that builds the next operations and the one that hands them out wait for
    threads that only spin until the next product.

    Args:
        most: threads that the BLAS takes by itself.
        cores: cores that the process may use.
        put: sets the number.
    """

    def __init__(self, most: int, cores: int, put: Callable[[int], object]) -> None:
        self._most = most
        self._spared = max(1, most - 1) if most >= cores else most
        self._put = put
        self._now = most

    def use_all(self) -> None:
        """Multiply with as many as the BLAS takes by itself."""
        self._use(self._most)

    def spare_one(self) -> None:
        """Leave a core to others, if there would be none otherwise."""
        self._use(self._spared)

    def _use(self, count: int) -> None:
        if count != self._now:
            self._put(count)
            self._now = count


@functools.cache
def blas_threads() -> BlasThreads:
    """Those of the BLAS that `prepare` loaded; one that comes with MLX is left alone."""
    runtime = _mkl_runtime() if prepare() == "mkl" else None
    if runtime is None:
        return BlasThreads(1, 1, lambda count: None)
    library = ctypes.CDLL(str(runtime))
    cores = len(os.sched_getaffinity(0))
    return BlasThreads(library.MKL_Get_Max_Threads(), cores, library.MKL_Set_Num_Threads)


@functools.cache
def _devices() -> tuple[Callable[[], mx.Device], mx.DeviceType]:
    """How to ask MLX for its device, and the CPU; importing anew takes longer than asking."""
    prepare()
    import mlx.core as mx

    return mx.default_device, mx.cpu


def on_cpu() -> bool:
    """Whether MLX computes on the CPU in this process; asked for many times in a forward pass."""
    device, cpu = _devices()
    return device().type == cpu
