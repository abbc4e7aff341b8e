"""Fills a model from a checkpoint. Everything is checked by name and shape before a byte is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_unflatten
from typing_extensions import assert_never

from phyla.engine.quantize import (
    PackedLayer,
    declared_schemes,
    packed_layers,
    scheme_of,
    unpack,
    unpacked_shape,
)
from phyla.engine.weight_rules import Origin, Part, Permuted, Placed, Stacked, Stored, place
from phyla.errors import CheckpointError
from phyla.nn.wide import wide_parameters

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from phyla.checkpoint import Checkpoint, QuantizationScheme
    from phyla.checkpoint.checkpoint import TensorStore
    from phyla.engine.precision import Precision
    from phyla.family import WeightRule

# Arrays are evaluated in batches of this size, so that sources are let go as copies are made.
_BATCH_BYTES = 256 * 2**20

_FLOATS = {"F32": mx.float32, "F16": mx.float16, "BF16": mx.bfloat16}
_NOT_FLOATS = {"BOOL", "U8", "I8", "U16", "I16", "U32", "I32", "U64", "I64", "F8_E4M3", "F8_E5M2"}


@runtime_checkable
class _Quantizable(Protocol):
    def to_quantized(
        self, group_size: int | None = None, bits: int | None = None, mode: str = "affine"
    ) -> nn.Module: ...


_Checked: TypeAlias = (
    "tuple[dict[str, Placed], dict[str, PackedLayer], dict[str, QuantizationScheme]]"
)


def check_weights(model: nn.Module, checkpoint: Checkpoint, rules: Sequence[WeightRule]) -> None:
    """Check by the headers that a checkpoint fits a model with unset weights; nothing is read.

    Raises:
        CheckpointError: as `load_weights` has it.
    """
    _checked(dict(tree_flatten(model.parameters())), checkpoint, rules)


def _checked(
    parameters: Mapping[str, mx.array], checkpoint: Checkpoint, rules: Sequence[WeightRule]
) -> _Checked:
    """The file's tensors by the model's names, its packed layers, and how those are packed."""
    placed = place(checkpoint.tensors, rules)
    layers = {
        path: layer
        for path, layer in packed_layers(placed).items()
        if f"{path}.weight" in parameters
    }
    _check_names(placed, parameters, layers)
    declared = declared_schemes(checkpoint, rules)
    schemes = {
        path: scheme_of(layer, declared, width=_width(parameters[f"{path}.weight"]))
        for path, layer in layers.items()
    }
    _check_shapes(placed, parameters, layers, schemes)
    return placed, layers, schemes


def load_weights(
    model: nn.Module, checkpoint: Checkpoint, rules: Sequence[WeightRule], precision: Precision
) -> None:
    """Fill `model`, in place, and evaluate its parameters.

    Layers that the file holds quantized become their quantized counterparts first, unless
    `precision` asks for float32 weights; those whose module has no counterpart are unpacked.
    Matrices keep a stored type that is narrower than the activations'; everything else that is
    floating-point is held in the activations' type, but for what a block keeps `Wide`.

    Args:
        model: a model with unset weights.
        checkpoint: where the tensors come from.
        rules: the family's rules from the file's names to the model's.
        precision: the types to hold weights in.

    Raises:
        CheckpointError: before anything is read or changed: a tensor has no use, a parameter no
            tensor, a shape or a quantization does not fit, or a rule does not.
    """
    parameters: dict[str, mx.array] = dict(tree_flatten(model.parameters()))
    placed, layers, schemes = _checked(parameters, checkpoint, rules)
    kept = _quantize_modules(model, schemes) if precision.weights == "stored" else set()
    wide = wide_parameters(model)
    reader = _Reader(checkpoint.load())
    filled: dict[str, mx.array] = {}
    batch: list[mx.array] = []
    held = 0
    for name in parameters:
        path, _, kind = name.rpartition(".")
        layer = layers.get(path) if kind == "weight" else None
        if layer is None:
            tensor = placed[name]
            array = reader.read(tensor.origin)
            if name in wide:
                array = array.astype(mx.float32)
            else:
                array = _hold(array, tensor.dtype, precision)
            arrays = {name: array}
        elif path in kept:
            arrays = {part.name: reader.read(part.origin) for part in layer.parts}
            for part in layer.parts[1:]:
                if mx.issubdtype(arrays[part.name].dtype, mx.floating):
                    arrays[part.name] = arrays[part.name].astype(precision.activations)
        else:
            weight, scales, *biases = (reader.read(part.origin) for part in layer.parts)
            biases = biases[0] if biases else None
            arrays = {name: unpack(weight, scales, biases, schemes[path], precision.activations)}
        # Computed while the next tensor is read and repacked.
        mx.async_eval(*arrays.values())
        filled.update(arrays)
        batch.extend(arrays.values())
        held += sum(array.nbytes for array in arrays.values())
        if held >= _BATCH_BYTES:
            mx.eval(batch)
            batch, held = [], 0
    mx.eval(batch)
    model.update(tree_unflatten(list(filled.items())))


def _width(parameter: mx.array) -> int | None:
    return parameter.shape[-1] if parameter.ndim else None


def _check_names(
    placed: Mapping[str, Placed],
    parameters: Mapping[str, mx.array],
    layers: Mapping[str, PackedLayer],
) -> None:
    used = parameters.keys() | {part.name for layer in layers.values() for part in layer.parts}
    unused = [tensor.source for name, tensor in placed.items() if name not in used]
    if unused:
        raise CheckpointError(
            f"The model has no use for {_listed(unused, 'tensor')} of the file.",
            field=unused[0],
            expected="each tensor used exactly once",
            found=unused,
            hint="Is this the right family? A conversion may also have left extra tensors behind.",
        )
    missing = [name for name in parameters if name not in placed]
    if missing:
        raise CheckpointError(
            f"The file holds nothing for {_listed(missing, 'parameter')} of the model.",
            field=missing[0],
            expected="each parameter filled",
            found=missing,
            hint="If the embedding is the head too, config.json has to say 'tie_word_embeddings': true."
            if missing == ["lm_head.weight"]
            else "A shard may be missing, or config.json belongs to another model.",
        )


def _listed(names: Sequence[str], noun: str, shown: int = 5) -> str:
    count = f"{len(names)} {noun}" + ("s" if len(names) > 1 else "")
    more = ", ..." if len(names) > shown else ""
    return f"{count} ({', '.join(names[:shown])}{more})"


def _check_shapes(
    placed: Mapping[str, Placed],
    parameters: Mapping[str, mx.array],
    layers: Mapping[str, PackedLayer],
    schemes: Mapping[str, QuantizationScheme],
) -> None:
    for name, parameter in parameters.items():
        tensor = placed[name]
        path, _, part = name.rpartition(".")
        found = tensor.shape
        if part == "weight" and path in layers:
            found = unpacked_shape(layers[path], schemes[path])
        elif tensor.dtype in _NOT_FLOATS and mx.issubdtype(parameter.dtype, mx.floating):
            raise CheckpointError(
                f"The tensor {tensor.source!r} has type {tensor.dtype}, which the parameter "
                f"{name!r} cannot be read from.",
                field=tensor.source,
                expected="a floating-point type, or a layer with MLX's scales",
                found=tensor.dtype,
                hint="Convert the model with mlx-lm, or use the unquantized checkpoint.",
            )
        if found != parameter.shape:
            raise CheckpointError(
                f"The tensor {tensor.source!r} gives {name!r} the shape {list(found)}; "
                f"the model expects {list(parameter.shape)}.",
                field=tensor.source,
                expected=parameter.shape,
                found=found,
                hint="config.json and the weights do not belong together.",
            )


def _quantize_modules(model: nn.Module, schemes: Mapping[str, QuantizationScheme]) -> set[str]:
    """Replace the modules that have a quantized counterpart; return their paths."""
    replaced: set[str] = set()

    def parameters_of(path: str, module: nn.Module) -> bool | dict[str, int | str]:
        scheme = schemes.get(path)
        if scheme is None or not isinstance(module, _Quantizable):
            return False
        replaced.add(path)
        return {"group_size": scheme.group_size, "bits": scheme.bits, "mode": scheme.mode}

    # The weights that it packs here are unset and never evaluated.
    nn.quantize(model, class_predicate=parameters_of)
    return replaced


def _hold(array: mx.array, dtype: str, precision: Precision) -> mx.array:
    """An unpacked tensor in the type that it is held in."""
    if not mx.issubdtype(array.dtype, mx.floating):
        return array
    target = precision.activations
    if precision.weights == "stored" and array.ndim >= 2:
        # GGUF's block types come unpacked to float32; float16 costs half and keeps their precision.
        stored = _FLOATS.get(dtype, mx.float16)
        if stored.size < target.size:
            target = stored
    return array.astype(target)


class _Reader:
    """Follows recipes: takes tensors out of the store, each once."""

    def __init__(self, store: TensorStore) -> None:
        self._store = store
        self._cut: dict[Origin, dict[int, mx.array]] = {}

    def read(self, origin: Origin) -> mx.array:
        match origin:
            case Stored(name=name):
                return self._store.pop(name)
            case Permuted(whole=whole, axes=axes):
                return mx.contiguous(self.read(whole).transpose(*axes))
            case Stacked(parts=parts):
                return mx.stack([self.read(part) for part in parts])
            case Part(whole=whole, axis=axis, index=index, count=count):
                if whole not in self._cut:
                    self._cut[whole] = dict(enumerate(mx.split(self.read(whole), count, axis)))
                pieces = self._cut[whole]
                piece = pieces.pop(index)
                if not pieces:
                    del self._cut[whole]
                return mx.contiguous(piece)
            case _:
                assert_never(origin)
