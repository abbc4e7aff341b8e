"""A gated delta net computes the same with its projections joined, apart, and in another order."""

from __future__ import annotations

import mlx.core as mx
import mlx.nn as nn
import pytest

from phyla.engine.caches import RecurrentCache
from phyla.nn import DeltaNetShape, GatedDeltaNet, fuse

DIM = 64


def shape(*, grouped: bool) -> DeltaNetShape:
    return DeltaNetShape(
        key_heads=2, value_heads=6, key_dim=16, value_dim=8, kernel=4, norm_eps=1e-6,
        grouped=grouped,
    )  # fmt: skip


def run(block: GatedDeltaNet, *, pieces: int = 3, dtype: mx.Dtype = mx.float32) -> mx.array:
    cache = RecurrentCache(block.shape.cache_kind, dtype)
    x = mx.random.normal((1, 12, DIM), key=mx.random.key(0)).astype(dtype)
    return mx.concatenate([block(piece, cache) for piece in mx.split(x, pieces, axis=1)], axis=1)


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("bits", [None, 4])
def test_joining_the_projections_changes_nothing(grouped: bool, bits: int | None) -> None:
    block = GatedDeltaNet(DIM, shape(grouped=grouped))
    if bits is not None:
        nn.quantize(block, 32, bits, class_predicate=lambda path, _: path.startswith("in_proj"))
    apart = run(block)
    fuse(block)
    assert "in_proj" in block
    assert mx.allclose(run(block), apart, atol=1e-5)
    fuse(block)
    assert mx.allclose(run(block), apart, atol=1e-5)


@pytest.mark.parametrize("grouped", [False, True])
def test_projections_of_two_kinds_are_joined_as_far_as_they_go(grouped: bool) -> None:
    block = GatedDeltaNet(DIM, shape(grouped=grouped))
    wide = ("in_proj_qkv", "in_proj_z")  # and in_proj_qkvz
    nn.quantize(block, 32, 8, class_predicate=lambda path, _: path.startswith(wide))
    apart = run(block)
    fuse(block)
    assert "in_proj_qkvz" in block
    assert "in_proj_ba" in block
    assert mx.allclose(run(block), apart, atol=1e-5)
    fuse(block)
    assert mx.allclose(run(block), apart, atol=1e-5)


def test_projections_that_do_not_fit_stay_apart() -> None:
    block = GatedDeltaNet(DIM, shape(grouped=False))
    nn.quantize(block, 32, 8, class_predicate=lambda path, _: path == "in_proj_z")
    apart = run(block)
    fuse(block)
    assert "in_proj_z" in block
    assert mx.allclose(run(block), apart, atol=1e-5)


def test_both_layouts_of_the_projections_hold_the_same_maps() -> None:
    flat, grouped = (GatedDeltaNet(DIM, shape(grouped=each)) for each in (False, True))
    key_rows = flat.in_proj_qkv.weight[: 2 * 2 * 16].reshape(2, 2, 16, DIM)
    value_rows = flat.in_proj_qkv.weight[2 * 2 * 16 :].reshape(2, 3 * 8, DIM)
    gate_rows = flat.in_proj_z.weight.reshape(2, 3 * 8, DIM)
    qkvz = [key_rows[0], key_rows[1], value_rows, gate_rows]
    grouped.in_proj_qkvz.weight = mx.concatenate(qkvz, axis=1).reshape(-1, DIM)
    both = (flat.in_proj_b.weight, flat.in_proj_a.weight)
    ba = [each.reshape(2, 3, DIM) for each in both]
    grouped.in_proj_ba.weight = mx.concatenate(ba, axis=1).reshape(-1, DIM)
    grouped.conv1d.weight = flat.conv1d.weight
    grouped.out_proj.weight = flat.out_proj.weight
    assert mx.allclose(run(grouped), run(flat), atol=1e-5)
    fuse(grouped)
    assert mx.allclose(run(grouped), run(flat), atol=1e-5)


@pytest.mark.parametrize("pieces", [1, 12])
def test_a_norm_in_float32_does_not_widen_the_activations(pieces: int) -> None:
    block = GatedDeltaNet(DIM, shape(grouped=False))
    norm = block.norm.weight
    block.set_dtype(mx.bfloat16)
    block.norm.weight, block.A_log = norm, block.A_log.astype(mx.float32)
    assert run(block, pieces=pieces, dtype=mx.bfloat16).dtype == mx.bfloat16
