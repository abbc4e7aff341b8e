"""What scripts/bench.py hands to mlx-lm is the model that Phyla runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

EXPORT = Path(__file__).parents[3] / "scripts" / "bench_peers" / "export.py"


@pytest.mark.parametrize("form", ["float32", "stored"])
def test_the_exported_folder_holds_the_same_model(tiny, tmp_path, form):
    import phyla

    subprocess.run([sys.executable, str(EXPORT), str(tiny), str(tmp_path), form], check=True)
    config = json.loads((tmp_path / "config.json").read_text())
    assert ("quantization" in config) == (form == "stored")
    with phyla.load(tiny) as model, phyla.load(tmp_path) as exported:
        expected, found = model.trace([1, 2, 3]).logits, exported.trace([1, 2, 3]).logits
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * float(np.ptp(expected)))
