from __future__ import annotations

import subprocess
import sys

import pytest

from phyla.backend import BlasThreads, _mkl_runtime

LOOK = """
import sys
import phyla.backend

loaded = []
phyla.backend._mkl_runtime = lambda: loaded.append("mlx.core" in sys.modules)
import {module}
{use}
assert "mlx.core" in sys.modules
print(loaded)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere MLX brings a fast BLAS")
@pytest.mark.parametrize(
    ("module", "use"),
    # Whatever is imported of `phyla.engine` imports the package first.
    [("phyla", "phyla.load"), ("phyla.testing", "")],
)
def test_the_fast_blas_is_looked_for_before_mlx_is_imported(module: str, use: str) -> None:
    code = LOOK.format(module=module, use=use)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[False]"]


def test_without_mkl_there_is_none_to_load(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib import metadata

    def absent(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "files", absent)
    assert _mkl_runtime() is None


@pytest.mark.parametrize(
    ("most", "cores", "spared"), [(2, 2, 1), (8, 8, 7), (4, 8, 4), (1, 1, 1), (1, 2, 1), (4, 2, 3)]
)
def test_a_core_is_spared_where_the_blas_would_take_all(most: int, cores: int, spared: int) -> None:
    told: list[int] = []
    threads = BlasThreads(most, cores, told.append)
    threads.use_all()
    assert told == []
    threads.spare_one()
    threads.spare_one()
    threads.use_all()
    assert told == ([spared, most] if spared != most else [])
