from __future__ import annotations

import subprocess
import sys

import pytest

from phyla.backend import _mkl_runtime

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
    [("phyla", "phyla.load"), ("phyla.testing", ""), ("phyla.engine.loading", "")],
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
