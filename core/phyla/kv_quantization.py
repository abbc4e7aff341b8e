"""How keys and values are kept smaller: bits and group size, apart for each. Knows no MLX."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from phyla.errors import RequestError
from phyla.validation import shown

BITS = (2, 3, 4, 5, 6, 8)
GROUP_SIZES = (32, 64, 128)


@dataclass(frozen=True, kw_only=True)
class Quantized:
    """Integers of some bits, with a scale and a bias for each group of values in a head.

    Attributes:
        bits: 2, 3, 4, 5, 6 or 8.
        group_size: 32, 64 or 128; a head whose width is no multiple of it is filled up.

    Raises:
        RequestError: MLX has no such quantization.
    """

    bits: int
    group_size: int = 64

    def __post_init__(self) -> None:
        _check("bits", self.bits, BITS)
        _check("group_size", self.group_size, GROUP_SIZES)


@dataclass(frozen=True, kw_only=True)
class KVQuantization:
    """How a sequence's keys and values are kept; None keeps them as they are computed.

    Keys suffer more from few bits than values do: 8 bits for keys and 4 for values lose little.

    Raises:
        RequestError: keys or values are something else.
    """

    keys: Quantized | None
    values: Quantized | None

    def __post_init__(self) -> None:
        _check_side("keys", self.keys)
        _check_side("values", self.values)


KVQuantizationLike: TypeAlias = KVQuantization | int | tuple[int, int] | None


def read_kv_quantization(wanted: KVQuantizationLike) -> KVQuantization | None:
    """Read bits for both, a pair of bits for keys and values, or the full value.

    Raises:
        RequestError: it is none of these, or MLX has no such quantization.
    """
    if wanted is None or isinstance(wanted, KVQuantization):
        return wanted
    pair = (wanted, wanted) if isinstance(wanted, int) else wanted
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise RequestError(
            f"kv_bits should be a number of bits, or one for keys and one for values; found "
            f"{shown(wanted)}.",
            field="kv_bits",
            expected=f"one of {BITS}, or two of them",
            found=wanted,
        )
    keys, values = pair
    return KVQuantization(keys=Quantized(bits=keys), values=Quantized(bits=values))


def _check_side(field: str, found: object) -> None:
    if found is not None and not isinstance(found, Quantized):
        raise RequestError(
            f"{field} should be kept as Quantized says, or be None; found {shown(found)}.",
            field=field,
            expected="Quantized or None",
            found=found,
            hint="For example Quantized(bits=8).",
        )


def _check(field: str, found: object, allowed: tuple[int, ...]) -> None:
    if type(found) is not int or found not in allowed:
        raise RequestError(
            f"The {field} of keys and values should be one of "
            f"{', '.join(str(each) for each in allowed)}; found {shown(found)}.",
            field=field,
            expected=allowed,
            found=found,
        )
