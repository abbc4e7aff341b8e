"""How packed weights are laid out, and how to unpack them. Knows no model.

A quantized layer is the triple `.weight` (uint32, values packed from the low bits), `.scales` and
`.biases`, or a pair without biases in the floating modes, whose scales are bytes. The packed shapes
say more than the config, which some conversions get wrong: `columns * 32 / bits` is the layer's
input width, and `groups * group_size` is the same number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import mlx.core as mx

from phyla.checkpoint import QuantizationScheme
from phyla.engine.weight_rules import Placed, renamed
from phyla.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from phyla.checkpoint import Checkpoint
    from phyla.family import WeightRule

# What mlx.core.quantize can unpack.
_AFFINE = tuple(
    QuantizationScheme(bits, group_size)
    for bits in (1, 2, 3, 4, 5, 6, 8)
    for group_size in (32, 64, 128)
)
_FLOATING = (
    QuantizationScheme(4, 32, "mxfp4"),
    QuantizationScheme(8, 32, "mxfp8"),
    QuantizationScheme(4, 16, "nvfp4"),
)


@dataclass(frozen=True)
class PackedLayer:
    """A quantized layer's tensors, by the layer's path in the model."""

    path: str
    weight: Placed
    scales: Placed
    biases: Placed | None

    @property
    def parts(self) -> tuple[Placed, ...]:
        """The tensors that there are."""
        some = (self.weight, self.scales)
        return some if self.biases is None else (*some, self.biases)


def packed_layers(placed: Mapping[str, Placed]) -> dict[str, PackedLayer]:
    """The layers that hold `.scales`, by path."""
    layers: dict[str, PackedLayer] = {}
    for name, scales in placed.items():
        path, _, part = name.rpartition(".")
        weight = placed.get(f"{path}.weight")
        if part == "scales" and weight is not None and weight.dtype == "U32":
            layers[path] = PackedLayer(path, weight, scales, placed.get(f"{path}.biases"))
    return layers


@dataclass(frozen=True)
class DeclaredSchemes:
    """What the config says, by the layers' paths in the model."""

    default: QuantizationScheme | None
    layers: Mapping[str, QuantizationScheme | None]

    def of(self, path: str) -> list[QuantizationScheme]:
        """All declared schemes, the one meant for this layer first."""
        own = self.layers.get(path, self.default)
        everything = (own, self.default, *self.layers.values())
        return list(dict.fromkeys(scheme for scheme in everything if scheme is not None))


def declared_schemes(checkpoint: Checkpoint, rules: Sequence[WeightRule]) -> DeclaredSchemes:
    """The config's schemes, with the keys of single layers renamed as their weights are."""
    layers = {
        target.removesuffix(".weight"): scheme
        for path, scheme in checkpoint.overrides.items()
        for target in renamed(f"{path}.weight", rules)
    }
    return DeclaredSchemes(checkpoint.quantization, layers)


def scheme_of(
    layer: PackedLayer, declared: DeclaredSchemes, *, width: int | None = None
) -> QuantizationScheme:
    """The scheme that a layer is packed with: the declared one if it fits the shapes.

    Otherwise the only one that fits; another declared one is tried first.

    Args:
        layer: the layer.
        declared: what the config says.
        width: the layer's input width, where the model is known; then the shapes leave no choice.

    Raises:
        CheckpointError: no scheme fits, or several do and none of them is declared.
    """
    weight, scales = layer.weight, layer.scales
    if weight.shape[:-1] != scales.shape[:-1] or (
        layer.biases is not None and layer.biases.shape != scales.shape
    ):
        raise _misfit(layer, declared, width, "parts of one shape")
    if layer.biases is None and scales.dtype != "U8":
        raise CheckpointError(
            f"The quantized layer {layer.path!r} has no biases.",
            field=f"{layer.path}.biases",
            expected=f"biases of shape {list(scales.shape)}",
            hint="Download the checkpoint again, or convert it again with a current mlx-lm.",
        )
    bits, groups = weight.shape[-1] * 32, scales.shape[-1]
    fitting = [
        scheme
        for scheme in (_FLOATING if layer.biases is None else _AFFINE)
        if bits == scheme.bits * groups * scheme.group_size
        and (width is None or width == groups * scheme.group_size)
    ]
    for scheme in declared.of(layer.path):
        if scheme in fitting:
            return scheme
    if len(fitting) != 1:
        raise _misfit(layer, declared, width, "shapes that fit one supported scheme")
    return fitting[0]


def _misfit(
    layer: PackedLayer, declared: DeclaredSchemes, width: int | None, expected: str
) -> CheckpointError:
    shapes = {part.name.rpartition(".")[2]: list(part.shape) for part in layer.parts}
    known = "" if width is None else f", for an input width of {width}"
    return CheckpointError(
        f"The quantized layer {layer.path!r} has shapes {shapes}{known}; expected {expected}.",
        field=layer.path,
        expected=declared.of(layer.path) or expected,
        found=shapes,
        hint="Compare config.json's `quantization` with the published one.",
    )


def unpacked_shape(layer: PackedLayer, scheme: QuantizationScheme) -> tuple[int, ...]:
    """The shape of the weight that the layer stands for."""
    return (*layer.weight.shape[:-1], layer.scales.shape[-1] * scheme.group_size)


def unpack(
    weight: mx.array,
    scales: mx.array,
    biases: mx.array | None,
    scheme: QuantizationScheme,
    dtype: mx.Dtype,
) -> mx.array:
    """The weight that a layer stands for, computed in float32 and given in `dtype`."""
    if biases is not None:
        scales, biases = scales.astype(mx.float32), biases.astype(mx.float32)
    values = mx.dequantize(
        weight,
        scales,
        biases,
        group_size=scheme.group_size,
        bits=scheme.bits,
        mode=scheme.mode,
        dtype=mx.float32,
    )
    return values.astype(dtype)
