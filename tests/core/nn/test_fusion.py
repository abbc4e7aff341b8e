"""Joined projections compute what their parts computed."""

from __future__ import annotations

import mlx.core as mx
import mlx.nn as nn
import pytest

from phyla.engine.caches import FullCache
from phyla.family import Full, RopeConfig, Step
from phyla.nn import Attention, AttentionShape, Rope, fuse, join_linears


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("qk_norm", [None, 1e-6])
@pytest.mark.parametrize("bits", [None, 4])
def test_attention_is_the_same_with_its_projections_joined(
    bias: bool, qk_norm: float | None, bits: int | None
) -> None:
    shape = AttentionShape(heads=4, kv_heads=2, head_dim=16, bias=bias, qk_norm_eps=qk_norm)
    block = Attention(64, shape)
    if bits is not None:
        nn.quantize(block, group_size=32, bits=bits)
    step = Step(ids=mx.zeros((1, 5)), positions=mx.arange(5)[None], extents=(5,))
    rotation = Rope(RopeConfig(theta=100.0), 16)(step)
    x = mx.random.normal((1, 5, 64), key=mx.random.key(0))

    kind = shape.cache_kind
    assert isinstance(kind, Full)

    def run() -> mx.array:
        return block(x, rotation, FullCache(kind))

    apart = run()
    fuse(block)
    assert "qkv_proj" in block
    assert "q_proj" not in block
    assert mx.allclose(run(), apart, atol=1e-5)


def test_maps_of_different_kinds_stay_apart() -> None:
    plain = nn.Linear(64, 8, bias=False)
    assert join_linears([plain, nn.Linear(64, 8)]) is None
    four, eight = (nn.QuantizedLinear(64, 8, False, 32, bits) for bits in (4, 8))
    assert join_linears([four, eight]) is None
    assert join_linears([plain, four]) is None
    half = nn.Linear(64, 8, bias=False)
    half.weight = half.weight.astype(mx.float16)
    assert join_linears([plain, half]) is None
