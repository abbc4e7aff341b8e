"""Reads how a config.json says that weights are packed. Knows MLX's form, and refuses the others.

MLX conversions write `quantization` (and a copy as `quantization_config`): `bits`, `group_size`
and `mode` for the model, and for single layers, under the layer's path, the same three or `false`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from phyla.checkpoint.checkpoint import QuantizationScheme
from phyla.errors import CheckpointError

FP8_HINT = (
    "Use the unquantized original (usually the same name without `-FP8`), or an MLX conversion."
)

_AFFINE_BITS = (2, 3, 4, 5, 6, 8)

# What MLX takes for a mode when bits or group size are not given; only affine has a choice.
_USUAL = {
    "affine": QuantizationScheme(bits=4, group_size=64, mode="affine"),
    "mxfp4": QuantizationScheme(bits=4, group_size=32, mode="mxfp4"),
    "mxfp8": QuantizationScheme(bits=8, group_size=32, mode="mxfp8"),
    "nvfp4": QuantizationScheme(bits=4, group_size=16, mode="nvfp4"),
}


@dataclass(frozen=True)
class Quantization:
    """The scheme of the model, and of single layers by their path; None is left unquantized."""

    scheme: QuantizationScheme | None = None
    overrides: Mapping[str, QuantizationScheme | None] = field(default_factory=dict)


def read_quantization(config: Mapping[str, Any]) -> Quantization:
    """Read the schemes from config.json's content.

    Raises:
        CheckpointError: the weights are packed by another method than MLX's, or a value is not
            one that MLX has.
    """
    key, entry = _entry(config)
    if entry is None:
        return Quantization()
    if not isinstance(entry, Mapping):
        raise _wrong(key, found=entry, expected="an object")
    method = entry.get("quant_method")
    if method == "fp8":
        raise CheckpointError(
            "The weights are in FP8 ('fp8', with `weight_scale_inv` beside them), which Phyla does "
            "not read.",
            file="config.json",
            found=method,
            expected="MLX quantization, or none",
            field=f"{key}.quant_method",
            hint=FP8_HINT,
        )
    if method not in (None, "mlx"):
        # Several tools write FP8, and say so in keys of their own.
        inner = " ".join(
            str(entry.get(name, "")) for name in ("quant_algo", "format", "weight_bits")
        )
        fp8 = "fp8" in f"{method} {inner}".lower() or "float-quantized" in inner
        what = f"{method!r} in FP8" if fp8 else f"{method!r}"
        raise CheckpointError(
            f"The weights are quantized with {what}, which Phyla does not read.",
            file="config.json",
            found=method,
            expected="MLX quantization, or none",
            field=f"{key}.quant_method",
            hint=FP8_HINT
            if fp8
            else "Use an MLX conversion of the model, or its unquantized original.",
        )
    if "bits" not in entry and "group_size" not in entry:
        raise _wrong(key, found=sorted(entry), expected="an object with `bits` and `group_size`")
    scheme = _scheme(key, entry)
    overrides: dict[str, QuantizationScheme | None] = {}
    for path, value in entry.items():
        if value is False:
            overrides[path] = None
        elif isinstance(value, Mapping):
            overrides[path] = _scheme(f"{key}.{path}", value)
    return Quantization(scheme, overrides)


def _entry(config: Mapping[str, Any]) -> tuple[str, Any]:
    """Find the entry that counts; `quantization` is MLX's own, so it comes first."""
    for key in ("quantization", "quantization_config"):
        if config.get(key):
            return key, config[key]
    text = config.get("text_config")
    if isinstance(text, Mapping) and text.get("quantization_config"):
        return "text_config.quantization_config", text["quantization_config"]
    return "quantization", None


def _scheme(key: str, entry: Mapping[str, Any]) -> QuantizationScheme:
    mode = entry.get("mode", "affine")  # also within an override: the model's mode is not inherited
    usual = _USUAL.get(mode) if isinstance(mode, str) else None
    if usual is None:
        raise _wrong(f"{key}.mode", found=mode, expected=f"one of {', '.join(_USUAL)}")
    bits, group_size = entry.get("bits", usual.bits), entry.get("group_size", usual.group_size)
    if usual.mode == "affine":
        if type(bits) is not int or bits not in _AFFINE_BITS:
            raise _wrong(f"{key}.bits", found=bits, expected=f"one of {_AFFINE_BITS}")
        if type(group_size) is not int or group_size < 1:
            raise _wrong(f"{key}.group_size", found=group_size, expected="a positive number")
    elif (bits, group_size) != (usual.bits, usual.group_size):
        raise _wrong(
            key,
            found=f"bits {bits!r}, group_size {group_size!r}",
            expected=f"bits {usual.bits}, group_size {usual.group_size} for mode {mode}",
        )
    return QuantizationScheme(bits=bits, group_size=group_size, mode=usual.mode)


def _wrong(field: str, *, found: object, expected: str) -> CheckpointError:
    return CheckpointError(
        f"config.json: {field!r} should be {expected}, found {found!r}.",
        file="config.json",
        found=found,
        expected=expected,
        field=field,
        hint="Compare config.json with the published one.",
    )
