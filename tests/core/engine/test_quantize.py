from __future__ import annotations

import mlx.core as mx
import pytest

from phyla.checkpoint import QuantizationScheme
from phyla.engine.quantize import DeclaredSchemes, packed_layers, scheme_of, unpack, unpacked_shape
from phyla.engine.weight_rules import Placed, Stored
from phyla.errors import CheckpointError

NOTHING = DeclaredSchemes(None, {})


def layer(columns: int, groups: int, *, floating: bool = False, rows: int = 4):
    parts = {"weight": (columns, "U32"), "scales": (groups, "U8" if floating else "F16")}
    if not floating:
        parts["biases"] = (groups, "F16")
    placed = {
        f"x.{kind}": Placed(f"x.{kind}", (rows, size), dtype, Stored(f"x.{kind}"))
        for kind, (size, dtype) in parts.items()
    }
    return packed_layers(placed)["x"]


def test_the_declared_scheme_is_taken_where_several_fit():
    same_bits = layer(columns=32, groups=4)  # 256 bits a group: 8 x 32, 4 x 64 or 2 x 128
    for scheme in (
        QuantizationScheme(8, 32),
        QuantizationScheme(4, 64),
        QuantizationScheme(2, 128),
    ):
        assert scheme_of(same_bits, DeclaredSchemes(scheme, {})) == scheme


def test_the_input_width_decides_where_several_fit():
    same_bits = layer(columns=32, groups=4)
    for width, bits in ((128, 8), (256, 4), (512, 2)):
        assert scheme_of(same_bits, NOTHING, width=width).bits == bits


def test_a_scheme_declared_for_another_layer_is_tried_before_giving_up():
    declared = DeclaredSchemes(QuantizationScheme(4, 64), {"y": QuantizationScheme(6, 64)})
    six_bits = layer(columns=24, groups=2)  # 384 bits a group: 6 x 64 or 3 x 128
    assert scheme_of(six_bits, declared) == QuantizationScheme(6, 64)


def test_several_fits_and_no_declaration_are_an_error():
    with pytest.raises(CheckpointError, match="'x'"):
        scheme_of(layer(columns=24, groups=2), NOTHING)


def test_the_only_fit_is_taken():
    assert scheme_of(layer(columns=10, groups=2), NOTHING) == QuantizationScheme(5, 32)


@pytest.mark.parametrize(
    ("columns", "groups", "mode"), [(16, 4, "mxfp4"), (32, 4, "mxfp8"), (16, 8, "nvfp4")]
)
def test_floating_modes_are_told_by_their_shapes(columns, groups, mode):
    found = scheme_of(layer(columns, groups, floating=True), NOTHING)
    assert found.mode == mode


def test_the_unpacked_shape_counts_groups():
    assert unpacked_shape(layer(columns=16, groups=2), QuantizationScheme(4, 64)) == (4, 128)


def test_unpacking_rounds_once_from_float32():
    weight = mx.random.normal((4, 64), key=mx.random.key(0))
    packed, scales, biases = mx.quantize(weight, group_size=32, bits=4)
    scales, biases = scales.astype(mx.float16), biases.astype(mx.float16)
    scheme = QuantizationScheme(4, 32)
    exact = unpack(packed, scales, biases, scheme, mx.float32)
    values = mx.stack([(packed >> (4 * i)) & 15 for i in range(8)], axis=-1).reshape(4, 2, 32)
    wide = (scales.astype(mx.float32)[..., None], biases.astype(mx.float32)[..., None])
    assert mx.allclose(exact.reshape(4, 2, 32), values * wide[0] + wide[1], rtol=1e-6, atol=1e-7)
    rounded = unpack(packed, scales, biases, scheme, mx.bfloat16)
    assert mx.array_equal(rounded, exact.astype(mx.bfloat16))
