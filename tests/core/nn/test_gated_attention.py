"""Gated attention computes the same with its projections joined."""

from __future__ import annotations

import mlx.core as mx
import mlx.nn as nn
import pytest

from phyla.engine.caches import FullCache
from phyla.family import Full, RopeConfig, Step
from phyla.nn import AttentionShape, GatedAttention, Rope, ZeroCentredRMSNorm, fuse


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("bits", [None, 4])
def test_joining_the_projections_changes_nothing(bias: bool, bits: int | None) -> None:
    shape = AttentionShape(heads=4, kv_heads=2, head_dim=16, bias=bias)
    block = GatedAttention(64, shape, norm=lambda dim: ZeroCentredRMSNorm(dim, 1e-6))
    block.q_norm.weight = mx.random.normal((16,), key=mx.random.key(1))
    if bits is not None:
        nn.quantize(block, 32, bits)
    step = Step(ids=mx.zeros((1, 5)), positions=mx.arange(5)[None], extents=(5,))
    rotation = Rope(RopeConfig(theta=100.0), 16)(step)
    x = mx.random.normal((1, 5, 64), key=mx.random.key(0))
    kind = shape.cache_kind
    assert isinstance(kind, Full)

    apart = block(x, rotation, FullCache(kind))
    fuse(block)
    assert "qkvg_proj" in block
    assert mx.allclose(block(x, rotation, FullCache(kind)), apart, atol=1e-5)


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16, mx.float16])
def test_a_zero_centred_norm_multiplies_by_one_more_than_its_weight(dtype: mx.Dtype) -> None:
    norm, plain = ZeroCentredRMSNorm(64, 1e-6), nn.RMSNorm(64, 1e-6)
    # Nothing near one has so many digits in 16 bits.
    norm.weight = (0.01 * mx.random.normal((64,), key=mx.random.key(1))).astype(dtype)
    plain.weight = norm.weight.astype(mx.float32) + 1
    x = mx.random.normal((3, 64), key=mx.random.key(0)).astype(dtype)
    expected = plain(x.astype(mx.float32)).astype(dtype)
    for _ in range(3):
        assert norm(x).dtype == dtype
        assert mx.array_equal(norm(x), expected)
        fuse(norm)
