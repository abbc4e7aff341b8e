"""A mixture of experts with one more that every token goes through (Qwen2-MoE's form).

Dai et al. 2024, arXiv:2401.06066, isolate such shared experts; here its output is gated.
"""

from __future__ import annotations

import mlx.core as mx
import mlx.nn as nn

from phyla.nn.decoder import GatedMLP
from phyla.nn.moe import SparseMoE


class SharedExpertMoE(SparseMoE):
    """`SparseMoE` plus `sigmoid(x . w) * shared_expert(x)`, one gate value per token.

    Args:
        dim: width of the hidden states.
        hidden: width of one routed expert.
        shared: width of the shared expert.
        experts: how many routed experts there are.
        per_token: how many each token goes through.
        normalize: divide the chosen weights by their sum.
    """

    def __init__(
        self,
        dim: int,
        hidden: int,
        *,
        shared: int,
        experts: int,
        per_token: int,
        normalize: bool,
    ) -> None:
        super().__init__(dim, hidden, experts=experts, per_token=per_token, normalize=normalize)
        self.shared_expert = GatedMLP(dim, shared)
        self.shared_expert_gate = nn.Linear(dim, 1, bias=False)

    def __call__(self, x: mx.array) -> mx.array:
        """`[..., D]` to `[..., D]`."""
        shared = mx.sigmoid(self.shared_expert_gate(x)) * self.shared_expert(x)
        return super().__call__(x) + shared
