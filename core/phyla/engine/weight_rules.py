"""Carries out weight rules on names and shapes alone. Reads no tensor.

The result says, for each name the model will see, what shape it has and how it comes from the
file's tensors; `phyla.engine.weights` follows that recipe with real arrays.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from typing_extensions import assert_never

from phyla.errors import CheckpointError
from phyla.family import Drop, Rename, Split, Stack, Transpose, WeightRule

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from phyla.checkpoint import TensorInfo


@dataclass(frozen=True)
class Stored:
    """A tensor of the file."""

    name: str


@dataclass(frozen=True)
class Permuted:
    """Another tensor with its axes permuted."""

    whole: Origin
    axes: tuple[int, ...]


@dataclass(frozen=True)
class Stacked:
    """Several tensors along a new first axis."""

    parts: tuple[Origin, ...]


@dataclass(frozen=True)
class Part:
    """Piece `index` of `count` equal pieces along an axis."""

    whole: Origin
    axis: int
    index: int
    count: int


Origin: TypeAlias = Stored | Permuted | Stacked | Part


@dataclass(frozen=True)
class Placed:
    """A tensor under the name the model will see; `dtype` is the file's spelling."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    origin: Origin

    @property
    def source(self) -> str:
        """The (first) tensor of the file that it comes from."""
        origin = self.origin
        while not isinstance(origin, Stored):
            origin = origin.parts[0] if isinstance(origin, Stacked) else origin.whole
        return origin.name


def place(tensors: Mapping[str, TensorInfo], rules: Sequence[WeightRule]) -> dict[str, Placed]:
    """Apply the rules in order, each to every name.

    Raises:
        CheckpointError: two tensors land on one name, a stack has a gap, or a shape does not allow
            what a rule says; names the tensors.
    """
    placed = {
        name: Placed(name, tensor.shape, tensor.dtype, Stored(name))
        for name, tensor in tensors.items()
    }
    for rule in rules:
        placed = _by_name(_apply(rule, placed))
    return placed


def renamed(name: str, rules: Sequence[WeightRule]) -> tuple[str, ...]:
    """The names that a tensor called `name` would end under, were there one."""
    names = [name]
    for rule in rules:
        names = [final for each in names for final in _rename(rule, each)]
    return tuple(names)


def _rename(rule: WeightRule, name: str) -> tuple[str, ...]:
    match = re.fullmatch(rule.pattern, name)
    if match is None or isinstance(rule, Transpose):
        return (name,)
    if isinstance(rule, Drop):
        return ()
    into = rule.into if isinstance(rule, Split) else (rule.into,)
    return tuple(match.expand(each) for each in into)


def _by_name(tensors: Iterable[Placed]) -> dict[str, Placed]:
    named: dict[str, Placed] = {}
    for tensor in tensors:
        other = named.setdefault(tensor.name, tensor)
        if other is not tensor:
            raise CheckpointError(
                f"The tensors {other.source!r} and {tensor.source!r} both become {tensor.name!r}.",
                field=tensor.source,
                expected="one tensor for each name",
                found=(other.source, tensor.source),
                hint="The file holds a tensor twice, or two weight rules overlap.",
            )
    return named


def _apply(rule: WeightRule, placed: Mapping[str, Placed]) -> list[Placed]:
    pattern = re.compile(rule.pattern)
    matches = [(tensor, pattern.fullmatch(name)) for name, tensor in placed.items()]
    rest = [tensor for tensor, match in matches if match is None]
    hits = [(tensor, match) for tensor, match in matches if match is not None]
    match rule:
        case Drop():
            return rest
        case Rename(into=into):
            return rest + [
                Placed(match.expand(into), tensor.shape, tensor.dtype, tensor.origin)
                for tensor, match in hits
            ]
        case Transpose(axes=axes):
            return rest + [_transpose(tensor, axes, placed) for tensor, _ in hits]
        case Split(into=into, axis=axis):
            return rest + [
                part
                for tensor, match in hits
                for part in _split(tensor, [match.expand(each) for each in into], axis)
            ]
        case Stack(into=into):
            groups: dict[str, dict[int, Placed]] = {}
            for tensor, match in hits:
                group = groups.setdefault(match.expand(into), {})
                index = int(match["index"])
                if index in group:
                    raise CheckpointError(
                        f"The tensors {group[index].source!r} and {tensor.source!r} both are "
                        f"number {index} of {match.expand(into)!r}.",
                        field=tensor.source,
                    )
                group[index] = tensor
            return rest + [_stack(name, group) for name, group in groups.items()]
        case _:
            assert_never(rule)


def _transpose(tensor: Placed, axes: tuple[int, ...], placed: Mapping[str, Placed]) -> Placed:
    if sorted(axes) != list(range(len(tensor.shape))):
        raise CheckpointError(
            f"The tensor {tensor.source!r} has shape {list(tensor.shape)}; "
            f"its axes cannot be permuted by {list(axes)}.",
            field=tensor.source,
            expected=f"{len(axes)} axes",
            found=tensor.shape,
        )
    module = tensor.name.rpartition(".")[0]
    if axes[-1] != len(axes) - 1 and f"{module}.scales" in placed:
        raise CheckpointError(
            f"The tensor {tensor.source!r} is quantized along its last axis, "
            f"which a weight rule would move.",
            field=tensor.source,
            expected="an unquantized tensor",
            hint="Use a checkpoint that leaves this layer unquantized.",
        )
    shape = tuple(tensor.shape[axis] for axis in axes)
    return Placed(tensor.name, shape, tensor.dtype, Permuted(tensor.origin, axes))


def _split(tensor: Placed, names: Sequence[str], axis: int) -> list[Placed]:
    count, rank = len(names), len(tensor.shape)
    if not -rank <= axis < rank or tensor.shape[axis] % count:
        raise CheckpointError(
            f"The tensor {tensor.source!r} has shape {list(tensor.shape)}; "
            f"it cannot be cut into {count} equal parts along axis {axis}.",
            field=tensor.source,
            expected=f"axis {axis} a multiple of {count}",
            found=tensor.shape,
        )
    axis %= rank
    shape = tuple(size // count if each == axis else size for each, size in enumerate(tensor.shape))
    return [
        Placed(name, shape, tensor.dtype, Part(tensor.origin, axis, index, count))
        for index, name in enumerate(names)
    ]


def _stack(name: str, group: Mapping[int, Placed]) -> Placed:
    for index in range(len(group)):
        if index not in group:
            raise CheckpointError(
                f"{name!r} is stacked from {len(group)} tensors, but number {index} is missing.",
                field=name,
                expected=f"numbers 0 to {max(group)}",
                found=sorted(group),
                hint="A shard may be missing; download the checkpoint again.",
            )
    parts = [group[index] for index in range(len(group))]
    first = parts[0]
    for part in parts:
        if (part.shape, part.dtype) != (first.shape, first.dtype):
            raise CheckpointError(
                f"{name!r} stacks {first.source!r} ({first.dtype} {list(first.shape)}) and "
                f"{part.source!r} ({part.dtype} {list(part.shape)}), which differ.",
                field=part.source,
                expected=first.shape,
                found=part.shape,
            )
    origin = Stacked(tuple(part.origin for part in parts))
    return Placed(name, (len(parts), *first.shape), first.dtype, origin)
