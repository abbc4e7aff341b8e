"""The conformance kit without the libraries that it needs."""

from __future__ import annotations

import subprocess
import sys


def test_without_pytest_the_kit_says_what_is_missing():
    code = "import sys; sys.modules['pytest'] = None; import phyla.testing"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last == "ImportError: phyla.testing needs pytest: install phyla[test]."
