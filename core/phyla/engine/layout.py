"""How matrices lie in memory on a CPU. Changes no value and no shape.

A layer multiplies rows by the transpose of its matrix `[out, in]`. If there are more outputs than
inputs, a BLAS does that fastest for one or two rows where the transpose is what lies in memory in
order, by column; for more rows where the matrix is, by row and in blocks (MKL, 49152 x 576: one row
takes 6 against 10 ms, eight take 29 against 15). For the head, the largest matrix by far in a small
model, several rows gain more than one row loses: it is turned when what it is asked for has changed
for good, from one reply to many at once or back. For others it is the other way, and they stay by
column; so does the head of a large model, since turning it would keep everybody waiting for seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_unflatten

from phyla.engine.precision import available_memory

if TYPE_CHECKING:
    from collections.abc import Iterator

_AT_ONCE = 2

# With fewer rows than this a matrix by column is faster.
_SEVERAL = 5
# With more rows than this it makes little difference, and a prompt is being read.
_MANY = 32

# So many products in a row have to ask for the other layout, since turning takes as long as about
# twenty of them save (49152 x 576: 0.4 s). Back to one row it takes longer: requests that come
# together do so again, and one row loses less.
_PATIENCE = 16
_PATIENCE_BACK = 64

# A matrix with so many times more outputs than inputs is a head.
_HEAD = 16

# By row, a product with several rows is faster in blocks of so many outputs, and only in those.
_BLOCK = 128

# Bytes of the largest head that is turned. It is held twice meanwhile.
_LARGEST = 2**28

# By column, up to so many rows are multiplied two by two where a matrix has more bytes than any cache.
_PAIRED_ROWS, _UNCACHED = 8, 2**25


class _Matrix:
    """Decides how one matrix lies."""

    def __init__(self) -> None:
        self._by_row = False
        self._against = 0

    def arranged(self, weight: mx.array, rows: int) -> mx.array:
        """The matrix as it shall lie from now on, a product with so many rows being asked for."""
        if rows > _MANY or weight.shape[0] % _BLOCK or weight.nbytes > _LARGEST:
            return weight
        self._against = self._against + 1 if (rows >= _SEVERAL) != self._by_row else 0
        if self._against <= (_PATIENCE_BACK if self._by_row else _PATIENCE):
            return weight
        self._against = 0
        # MLX running out of memory would end the process.
        if available_memory() < 2 * weight.nbytes:
            return weight
        self._by_row = not self._by_row
        return mx.contiguous(weight) if self._by_row else mx.contiguous(weight.T).T

    def product(self, x: mx.array, weight: mx.array) -> mx.array:
        """`x @ weight.T` in the form that suits how the matrix lies."""
        outputs, inputs = weight.shape
        rows = x.size // inputs
        if not 2 < rows <= _MANY:
            return x @ weight.T
        if self._by_row:
            blocks = weight.reshape(-1, _BLOCK, inputs).swapaxes(1, 2)
            out = (x.reshape(1, rows, inputs) @ blocks).swapaxes(0, 1)
        elif rows <= _PAIRED_ROWS and weight.nbytes > _UNCACHED:
            flat = x.reshape(rows, inputs)
            out = mx.concatenate([flat[at : at + 2] @ weight.T for at in range(0, rows, 2)])
        else:
            return x @ weight.T
        return out.reshape(*x.shape[:-1], outputs)


class TurningLinear(nn.Linear):
    """An `nn.Linear` whose matrix is turned as needed."""

    def __init__(self, linear: nn.Linear) -> None:
        nn.Module.__init__(self)
        dict.update(self, linear)
        self._matrix = _Matrix()

    def __call__(self, x: mx.array) -> mx.array:
        """`[..., in]` to `[..., out]`."""
        self.weight = self._matrix.arranged(self.weight, x.size // x.shape[-1])
        out = self._matrix.product(x, self.weight)
        return out + self.bias if "bias" in self else out


class TurningEmbedding(nn.Embedding):
    """An `nn.Embedding` whose table, where it serves as the head, is turned as needed."""

    def __init__(self, embedding: nn.Embedding) -> None:
        nn.Module.__init__(self)
        dict.update(self, embedding)
        self._matrix = _Matrix()

    def as_linear(self, x: mx.array) -> mx.array:
        """`[..., dim]` to `[..., tokens]`."""
        self.weight = self._matrix.arranged(self.weight, x.size // x.shape[-1])
        return self._matrix.product(x, self.weight)


def arrange_for_cpu(model: nn.Module) -> None:
    """Lay out wide float32 matrices by column, in place, and have heads turned as needed."""
    wide = {id(module): module for _, module in _wide(model)}
    # MLX runs one operation per stream at a time, and this one on one core.
    streams = [mx.new_stream(mx.cpu) for _ in range(_AT_ONCE)]
    modules = list(wide.values())
    for start in range(0, len(modules), _AT_ONCE):
        together = modules[start : start + _AT_ONCE]
        for module, stream in zip(together, streams, strict=False):
            module.weight = mx.contiguous(module.weight.T, stream=stream).T
        # Few by few, so that few matrices are held twice.
        mx.eval([module.weight for module in together])
    turning = {key: _turning(module) for key, module in wide.items() if _is_head(module)}
    named = [(name, turning[id(module)]) for name, module in _wide(model) if id(module) in turning]
    model.update_modules(tree_unflatten(named))


def _is_head(module: nn.Linear | nn.Embedding) -> bool:
    outputs, inputs = module.weight.shape
    return outputs >= _HEAD * inputs


def _turning(module: nn.Linear | nn.Embedding) -> nn.Module:
    return TurningLinear(module) if isinstance(module, nn.Linear) else TurningEmbedding(module)


def _wide(model: nn.Module) -> Iterator[tuple[str, nn.Linear | nn.Embedding]]:
    """The matrices that it concerns; a family's own kinds of layers are left as they are."""
    for name, module in model.named_modules():
        if type(module) in (nn.Linear, nn.Embedding) and module.weight.dtype == mx.float32:
            outputs, inputs = module.weight.shape
            if outputs > inputs:
                yield name, module
