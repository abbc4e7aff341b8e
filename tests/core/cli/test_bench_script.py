"""scripts/bench.py: what it hands to mlx-lm is the model that Phyla runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPTS = Path(__file__).parents[3] / "scripts"
EXPORT = SCRIPTS / "bench_peers" / "export.py"


@pytest.mark.parametrize("form", ["float32", "stored"])
def test_the_exported_folder_holds_the_same_model(tiny, tmp_path, form):
    import phyla

    subprocess.run([sys.executable, str(EXPORT), str(tiny), str(tmp_path), form], check=True)
    config = json.loads((tmp_path / "config.json").read_text())
    assert ("quantization" in config) == (form == "stored")
    with phyla.load(tiny) as model, phyla.load(tmp_path) as exported:
        expected, found = model.trace([1, 2, 3]).logits, exported.trace([1, 2, 3]).logits
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * float(np.ptp(expected)))


def test_the_cost_of_reading_a_reply_is_a_share_of_a_decode_step(tiny):
    arguments = [str(tiny), "--classifier", "--runs", "1", "--decode", "2"]
    result = subprocess.run(
        [sys.executable, str(SCRIPTS / "bench.py"), *arguments],
        check=True,
        capture_output=True,
        text=True,
    )
    lines = result.stdout.splitlines()
    assert [line.count("%") for line in lines] == [0, 0, 1, 1, 1, 1, 0, 0]
    assert "a decode step of tiny-llama" in lines[-1]
