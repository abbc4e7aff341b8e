"""Sparse mixture of experts: each token goes through a few of many gated MLPs."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from phyla.backend import on_cpu
from phyla.nn.activations import GatedActivation, swiglu

if TYPE_CHECKING:
    from collections.abc import Callable

# Below this many (token, expert) pairs, sorting costs more than the scattered reads it saves.
_SORT_FROM = 64
# From so many rows for each expert on, a BLAS multiplies an expert's rows faster together than MLX's
# gathered product does on a CPU, which takes one after another (16 experts of 512 x 384, 128 rows
# each: 21 against 50 ms).
_TOGETHER_FROM = 32


class ExpertLinear(nn.Module):
    """One linear map per expert, stacked: weight `[experts, out, in]`."""

    def __init__(self, experts: int, inputs: int, outputs: int) -> None:
        super().__init__()
        scale = inputs**-0.5
        self.weight = mx.random.uniform(low=-scale, high=scale, shape=(experts, outputs, inputs))

    def __call__(self, x: mx.array, experts: mx.array, *, in_order: bool) -> mx.array:
        """Apply expert `experts[i]` to row i of `x` `[N, 1, in]`; gives `[N, 1, out]`.

        One row `[1, 1, in]` goes through all N experts.
        """
        if on_cpu() and self.weight.dtype != mx.float32:
            return self._in_float32(x, experts).astype(x.dtype)
        if on_cpu() and in_order and experts.size >= _TOGETHER_FROM * self.weight.shape[0]:
            return self._one_by_one(x, experts)
        return mx.gather_mm(
            x, self.weight.swapaxes(-1, -2), rhs_indices=experts, sorted_indices=in_order
        )

    def _in_float32(self, x: mx.array, experts: mx.array) -> mx.array:
        """The only type in which MLX has a gathered product on a CPU; unpacks what is in use."""
        x, weight = x.astype(mx.float32), self.weight
        if experts.size < weight.shape[0]:
            return x @ weight[experts].astype(mx.float32).swapaxes(-1, -2)
        return mx.gather_mm(x, weight.astype(mx.float32).swapaxes(-1, -2), rhs_indices=experts)

    def _one_by_one(self, x: mx.array, experts: mx.array) -> mx.array:
        """One product for each expert; waits until it is known where each one's rows end."""
        numbers = np.arange(self.weight.shape[0])
        ends = np.searchsorted(np.array(experts), numbers, side="right").tolist()
        parts = [
            x[start:stop, 0] @ self.weight[expert].T
            for expert, (start, stop) in enumerate(pairwise((0, *ends)))
            if start < stop
        ]
        return mx.concatenate(parts)[:, None, :]

    def to_quantized(
        self, group_size: int | None = None, bits: int | None = None, mode: str = "affine"
    ) -> QuantizedExpertLinear:
        """The same map with packed weights, as `mlx.nn.quantize` asks for it."""
        experts, outputs, inputs = self.weight.shape
        return QuantizedExpertLinear(
            experts, inputs, outputs, group_size=group_size or 64, bits=bits or 4, mode=mode
        )


class QuantizedExpertLinear(nn.Module):
    """`ExpertLinear` with packed weights."""

    def __init__(
        self, experts: int, inputs: int, outputs: int, *, group_size: int, bits: int, mode: str
    ) -> None:
        super().__init__()
        self.group_size, self.bits, self.mode = group_size, bits, mode
        packed = mx.quantize(
            mx.zeros((experts, outputs, inputs)), group_size=group_size, bits=bits, mode=mode
        )
        self.weight, self.scales = packed[0], packed[1]
        if len(packed) > 2:
            self.biases = packed[2]
        self.freeze()

    def __call__(self, x: mx.array, experts: mx.array, *, in_order: bool) -> mx.array:
        """Apply expert `experts[i]` to row i of `x` `[N, 1, in]`; gives `[N, 1, out]`.

        One row `[1, 1, in]` goes through all N experts.
        """
        return mx.gather_qmm(
            x,
            self.weight,
            self.scales,
            self.get("biases"),
            rhs_indices=experts,
            transpose=True,
            group_size=self.group_size,
            bits=self.bits,
            mode=self.mode,
            sorted_indices=in_order,
        )


class ExpertMLPs(nn.Module):
    """The gated MLPs of all experts, under the names that MLX conversions use."""

    def __init__(
        self, experts: int, dim: int, hidden: int, *, activation: GatedActivation = swiglu
    ) -> None:
        super().__init__()
        self.activation = activation
        self.gate_proj = ExpertLinear(experts, dim, hidden)
        self.up_proj = ExpertLinear(experts, dim, hidden)
        self.down_proj = ExpertLinear(experts, hidden, dim)

    def __call__(self, x: mx.array, chosen: mx.array) -> mx.array:
        """Run tokens `[N, D]` through experts `chosen` `[N, K]`; gives `[N, K, D]`.

        With many tokens the pairs are sorted by expert, so each expert's weights are read once.
        """

        def run(rows: mx.array, experts: mx.array, in_order: bool) -> mx.array:
            hidden = self.activation(
                self.gate_proj(rows, experts, in_order=in_order),
                self.up_proj(rows, experts, in_order=in_order),
            )
            return self.down_proj(hidden, experts, in_order=in_order)

        return through_experts(x, chosen, run)


def through_experts(
    x: mx.array, chosen: mx.array, run: Callable[[mx.array, mx.array, bool], mx.array]
) -> mx.array:
    """Run tokens `[N, D]` through experts `chosen` `[N, K]`; gives `[N, K, out]`.

    `run(rows, experts, in_order)` gets one row `[1, D]` for each pair of a token and an expert,
    stacked, and the numbers of the experts; with many pairs those are in ascending order. The row of
    a single token comes once for all of its experts.
    """
    count, per_token = chosen.shape
    flat = chosen.reshape(-1)
    if count == 1:
        return run(x[:, None, :], flat, False).reshape(1, per_token, -1)
    if flat.size < _SORT_FROM:
        tokens = mx.repeat(mx.arange(count), per_token)
        return run(x[tokens][:, None, :], flat, False).reshape(count, per_token, -1)
    order = mx.argsort(flat)
    out = run(x[order // per_token][:, None, :], flat[order], True)[:, 0, :]
    return out[mx.argsort(order)].reshape(count, per_token, -1)


def weighted_sum(out: mx.array, weights: mx.array) -> mx.array:
    """Experts' outputs `[N, K, D]` by weights `[N, K]`, added in float32; `[N, D]` as `out` is."""
    return (out * weights[..., None].astype(mx.float32)).sum(axis=1).astype(out.dtype)


class SparseMoE(nn.Module):
    """Top-k routing by softmax (Shazeer et al. 2017, arXiv:1701.06538; Qwen3-MoE's form).

    Args:
        dim: width of the hidden states.
        hidden: width of one expert.
        experts: how many there are.
        per_token: how many each token goes through.
        normalize: divide the chosen weights by their sum.
    """

    def __init__(
        self, dim: int, hidden: int, *, experts: int, per_token: int, normalize: bool
    ) -> None:
        super().__init__()
        self.per_token = per_token
        self.normalize = normalize
        self.gate = nn.Linear(dim, experts, bias=False)
        self.switch_mlp = ExpertMLPs(experts, dim, hidden)

    def __call__(self, x: mx.array) -> mx.array:
        """`[..., D]` to `[..., D]`; the router's softmax is in float32."""
        tokens = x.reshape(-1, x.shape[-1])
        weights = mx.softmax(self.gate(tokens).astype(mx.float32), axis=-1)
        chosen = mx.argpartition(weights, kth=-self.per_token, axis=-1)[:, -self.per_token :]
        weights = mx.take_along_axis(weights, chosen, axis=-1)
        if self.normalize:
            weights = weights / weights.sum(axis=-1, keepdims=True)
        out = self.switch_mlp(tokens, chosen)
        return weighted_sum(out, weights).reshape(x.shape)
