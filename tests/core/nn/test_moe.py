from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from phyla.nn.moe import ExpertLinear


@pytest.mark.parametrize("pairs", [1, 63, 128, 500])
@pytest.mark.parametrize("used", [[0, 1, 2, 3], [1, 3], [2]])
def test_rows_sorted_by_expert_give_what_each_expert_gives_alone(
    pairs: int, used: list[int]
) -> None:
    linear = ExpertLinear(4, 8, 6)
    draw = np.random.default_rng(pairs)
    experts = np.sort(draw.choice(used, pairs)).astype(np.uint32)
    x = mx.array(draw.standard_normal((pairs, 1, 8)).astype(np.float32))
    found = linear(x, mx.array(experts), in_order=True)
    weight = np.array(linear.weight)
    expected = np.einsum("noi,nti->nto", weight[experts], np.array(x))
    np.testing.assert_allclose(np.array(found), expected, atol=1e-5)
