"""How keys and values may be kept smaller: what can be said, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from phyla.errors import RequestError
from phyla.kv_quantization import (
    BITS,
    GROUP_SIZES,
    KVQuantization,
    KVQuantizationLike,
    Quantized,
    read_kv_quantization,
)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("group_size", GROUP_SIZES)
def test_each_width_and_group_can_be_said(bits: int, group_size: int) -> None:
    assert Quantized(bits=bits, group_size=group_size).group_size == group_size


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (None, None),
        (8, KVQuantization(keys=Quantized(bits=8), values=Quantized(bits=8))),
        ((8, 4), KVQuantization(keys=Quantized(bits=8), values=Quantized(bits=4))),
        (
            KVQuantization(keys=None, values=Quantized(bits=3, group_size=32)),
            KVQuantization(keys=None, values=Quantized(bits=3, group_size=32)),
        ),
    ],
)
def test_bits_for_both_and_a_pair_of_bits_are_short_for_the_full_value(
    wanted: KVQuantizationLike, expected: KVQuantization | None
) -> None:
    assert read_kv_quantization(wanted) == expected


@pytest.mark.parametrize(
    ("field", "bits", "group_size"),
    [
        ("bits", 7, 64),
        ("bits", 0, 64),
        ("bits", 16, 64),
        ("bits", 4.0, 64),
        ("bits", True, 64),
        ("bits", "4", 64),
        ("bits", None, 64),
        ("group_size", 4, 16),
        ("group_size", 4, 0),
        ("group_size", 4, -64),
        ("group_size", 4, 64.0),
    ],
)
def test_what_mlx_cannot_do_is_refused_by_the_name_of_the_field(
    field: str, bits: Any, group_size: Any
) -> None:
    with pytest.raises(RequestError, match=field) as caught:
        Quantized(bits=bits, group_size=group_size)
    assert caught.value.field == field
    assert caught.value.found == (bits if field == "bits" else group_size)


@pytest.mark.parametrize("wanted", ["8", "ab", (8,), (8, 4, 2), [8, 4], 8.0, {"keys": 8}, object()])
def test_anything_else_is_refused(wanted: Any) -> None:
    with pytest.raises(RequestError) as caught:
        read_kv_quantization(wanted)
    assert caught.value.field == "kv_bits"


@pytest.mark.parametrize("wanted", [7, True, (8, 7), (8, None), (8, "4")])
def test_bits_that_there_are_none_of_are_refused(wanted: Any) -> None:
    with pytest.raises(RequestError, match="bits"):
        read_kv_quantization(wanted)


@pytest.mark.parametrize(("keys", "values", "field"), [(8, None, "keys"), (None, "4", "values")])
def test_each_side_is_a_quantization_or_none(keys: Any, values: Any, field: str) -> None:
    with pytest.raises(RequestError, match=field) as caught:
        KVQuantization(keys=keys, values=values)
    assert caught.value.field == field
