r"""How a checkpoint's tensor names become a model's parameter names: rules, as data.

Rules are applied in order, each to every name. A pattern is a regular expression matched against
the whole name (`re.fullmatch`), a replacement may use its groups (`\\1`). The loader checks, by
name, that each tensor of the file is used exactly once and each parameter of the model is filled.
A quantized tensor is the triple `NAME.weight`, `NAME.scales`, `NAME.biases`; rules see each part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Rename:
    """Give a tensor another name."""

    pattern: str
    into: str


@dataclass(frozen=True)
class Drop:
    """Leave a tensor out, on purpose."""

    pattern: str


@dataclass(frozen=True)
class Transpose:
    """Permute a tensor's axes, in place of its old layout."""

    pattern: str
    axes: tuple[int, ...]


@dataclass(frozen=True)
class Stack:
    """Stack tensors that differ in one number into one, along a new first axis.

    `pattern` holds a group named `index`, which runs from 0 without a gap.
    """

    pattern: str
    into: str


@dataclass(frozen=True)
class Split:
    """Cut a tensor into equal parts along an axis, one name for each."""

    pattern: str
    into: tuple[str, ...]
    axis: int = 0


WeightRule: TypeAlias = Rename | Drop | Transpose | Stack | Split
