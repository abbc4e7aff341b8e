"""What a checkpoint's weights amount to, from the headers: counts and bytes, no tensor read."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from phyla.engine.quantize import declared_schemes, packed_layers, scheme_of, unpacked_shape
from phyla.engine.weight_rules import place

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from phyla.checkpoint import Checkpoint, QuantizationScheme
    from phyla.family import WeightRule


@dataclass(frozen=True, kw_only=True)
class WeightPlan:
    """How many parameters there are and how they are stored.

    Attributes:
        parameters: of the model, whatever they are packed into.
        quantized: parameters by the scheme they are packed with.
        unquantized: parameters by the type they are stored in, in the file's spelling.
        scales: values of the scales and biases of quantized layers, by type.
    """

    parameters: int
    quantized: Mapping[QuantizationScheme, int]
    unquantized: Mapping[str, int]
    scales: Mapping[str, int]

    @property
    def float32_bytes(self) -> int:
        """The size of all parameters held as float32."""
        return 4 * self.parameters


def plan_weights(checkpoint: Checkpoint, rules: Sequence[WeightRule] = ()) -> WeightPlan:
    """Count the parameters, of the tensors that the rules keep.

    Raises:
        CheckpointError: a rule or a packed layer does not fit the file.
    """
    placed = place(checkpoint.tensors, rules)
    declared = declared_schemes(checkpoint, rules)
    quantized: Counter[QuantizationScheme] = Counter()
    scales: Counter[str] = Counter()
    for layer in packed_layers(placed).values():
        scheme = scheme_of(layer, declared)
        quantized[scheme] += math.prod(unpacked_shape(layer, scheme))
        for part in layer.parts:
            del placed[part.name]
        for part in layer.parts[1:]:
            scales[part.dtype] += math.prod(part.shape)
    unquantized: Counter[str] = Counter()
    for tensor in placed.values():
        unquantized[tensor.dtype] += math.prod(tensor.shape)
    return WeightPlan(
        parameters=quantized.total() + unquantized.total(),
        quantized=dict(quantized),
        unquantized=dict(unquantized),
        scales=dict(scales),
    )
