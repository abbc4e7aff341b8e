"""Routers: which experts a token goes through, and how much each of them counts."""

from __future__ import annotations

import math

import mlx.core as mx
import mlx.nn as nn

from phyla.nn.checks import check_least, check_multiple
from phyla.nn.wide import Wide


class SigmoidRouter(Wide):
    """Top-k of sigmoid scores, as in DeepSeek-V3 (DeepSeek-AI 2024, arXiv:2412.19437, 2.1.2).

    A learnt bias, which balances the experts' load (Wang et al. 2024, arXiv:2408.15664), decides
    with the score who is chosen; how much the chosen count is up to the score alone. With groups,
    only experts of the best groups are eligible; a group is as good as its two best experts.
    All of it is computed in float32, with the projection's weight in float32 too, as the reference
    keeps it for Nemotron 3: rounded to 16 bits, it would choose other experts here and there.

    Args:
        dim: width of the hidden states.
        experts: how many there are.
        per_token: how many each token goes through.
        bias: whether there is a bias.
        normalize: divide the chosen scores by their sum.
        floor: is added to that sum.
        scale: multiplies the weights at last.
        groups: into how many groups of equal size the experts fall, in order.
        kept_groups: how many of them are eligible.

    Raises:
        ValueError: the numbers do not fit together.
    """

    float32 = ("expert_bias", "proj.weight")

    def __init__(
        self,
        dim: int,
        experts: int,
        *,
        per_token: int,
        bias: bool = True,
        normalize: bool = True,
        floor: float = 0.0,
        scale: float = 1.0,
        groups: int = 1,
        kept_groups: int = 1,
    ) -> None:
        super().__init__()
        _check(experts, per_token, groups, kept_groups)
        self.per_token = per_token
        self.normalize, self.floor, self.scale = normalize, floor, scale
        self.groups, self.kept_groups = groups, kept_groups
        self.proj = nn.Linear(dim, experts, bias=False)
        if bias:
            self.expert_bias = mx.zeros((experts,))

    def __call__(self, tokens: mx.array) -> tuple[mx.array, mx.array]:
        """For tokens `[N, D]` the chosen experts and their weights, both `[N, K]`, in no order."""
        scores = mx.sigmoid(self.proj(tokens.astype(mx.float32)))
        merit = scores
        if "expert_bias" in self:
            merit = merit + self.expert_bias.astype(mx.float32)
        if self.kept_groups < self.groups:
            merit = self._in_best_groups(merit)
        chosen = mx.argpartition(-merit, kth=self.per_token - 1, axis=-1)[:, : self.per_token]
        weights = mx.take_along_axis(scores, chosen, axis=-1)
        if self.normalize:
            weights = weights / (weights.sum(axis=-1, keepdims=True) + self.floor)
        return chosen, weights if self.scale == 1.0 else weights * self.scale

    def _in_best_groups(self, merit: mx.array) -> mx.array:
        """`merit`, with minus infinity where a group is not kept: zero would beat a negative one."""
        grouped = merit.reshape(merit.shape[0], self.groups, -1)
        strength = mx.topk(grouped, 2, axis=-1).sum(axis=-1)  # (N, groups)
        out = self.groups - self.kept_groups
        dropped = mx.argpartition(strength, kth=out - 1, axis=-1)[:, :out, None]
        kept = mx.put_along_axis(grouped, dropped, mx.array(-math.inf), axis=1)
        return kept.reshape(merit.shape)


def _check(experts: int, per_token: int, groups: int, kept_groups: int) -> None:
    numbers = [("experts", experts), ("per_token", per_token), ("groups", groups)]
    check_least("SigmoidRouter", [*numbers, ("kept_groups", kept_groups)])
    check_multiple("SigmoidRouter", ("experts", experts), ("groups", groups))
    if kept_groups > groups:
        raise ValueError(
            f"SigmoidRouter: kept_groups should be up to groups; found {kept_groups} and {groups}."
        )
    if kept_groups < groups and experts // groups < 2:
        raise ValueError(
            "SigmoidRouter: a group, as good as its two best experts, should have two or more; "
            f"found {experts} experts in {groups} groups."
        )
    eligible = experts // groups * kept_groups
    if per_token > eligible:
        raise ValueError(
            f"SigmoidRouter: per_token should be up to the {eligible} experts that are eligible; "
            f"found {per_token}."
        )
