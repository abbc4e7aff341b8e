"""Every model type in bfloat16 and in 4 bits: what its layers compute in, and how far it is off.

The bounds are those of docs/precision.md, whose table scripts/precision_table.py makes.
"""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import pytest

from phyla.testing import Forward, prompt_ids
from phyla.testing.thorough import some

if TYPE_CHECKING:
    from phyla.testing import Tiny

SCRIPT = Path(__file__).parents[2] / "scripts" / "precision_table.py"
TABLE: dict[str, Any] = runpy.run_path(str(SCRIPT))
ALL = list(TABLE["one_of_each_type"]())
TYPES = [pytest.param(tiny, id=title) for title, tiny in some(ALL, count=len(ALL), most=4)]


def dtypes(folder: Path, dtype: str) -> set[mx.Dtype]:
    """The types that the layers give their hidden states in, in a prompt and in a single step."""
    forward, ids = Forward(folder, dtype=dtype), prompt_ids(9)
    found: list[mx.Dtype] = []
    cursor = forward.cursor(10)
    for piece in (ids, ids[:1]):
        cursor.trace(piece, lambda layer, hidden: found.append(hidden.dtype))
    assert len(found) == 2 * len(forward.model.cache_kinds())
    return set(found)


@pytest.mark.parametrize("tiny", TYPES)
def test_distances_from_float32_and_types_of_layers_are_as_documented(
    tiny: Tiny, tmp_path: Path
) -> None:
    found = TABLE["Distances"].of(tiny, tmp_path)
    assert found.half.mean < 0.01
    assert found.four_bits.mean < 0.05
    if mx.default_device() == mx.Device(mx.cpu):
        assert found.packed.largest < 1e-4
        assert dtypes(tmp_path / "packed", "stored") == {mx.float32}
    for folder in ("bfloat16", "packed"):
        assert dtypes(tmp_path / folder, "bfloat16") == {mx.bfloat16}
