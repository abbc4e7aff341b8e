"""How Gemma 4 chooses experts."""

from __future__ import annotations

import mlx.core as mx
import mlx.nn as nn


class Router(nn.Module):
    """Chooses experts from the normed residual stream, each with a learned scale of its own."""

    def __init__(self, dim: int, *, experts: int, per_token: int, norm_eps: float) -> None:
        super().__init__()
        self.per_token = per_token
        self.norm_eps = norm_eps
        self.scale = mx.ones((dim,))
        self.proj = nn.Linear(dim, experts, bias=False)
        self.per_expert_scale = mx.ones((experts,))

    def __call__(self, tokens: mx.array) -> tuple[mx.array, mx.array]:
        """For tokens `[N, D]` the chosen experts `[N, K]` and their weights in float32 `[N, K]`.

        The softmax is over the chosen scores only, which is the same as one over all of them,
        divided by what the chosen ones sum to.
        """
        scores = self.proj(mx.fast.rms_norm(tokens, self.scale, self.norm_eps))
        # The checkpoint's scale lacks a root of the width, whose place is here for its precision.
        scores = scores.astype(mx.float32) * tokens.shape[-1] ** -0.5
        chosen = mx.argpartition(-scores, kth=self.per_token - 1, axis=-1)[:, : self.per_token]
        weights = mx.softmax(mx.take_along_axis(scores, chosen, axis=-1), axis=-1)
        return chosen, weights * self.per_expert_scale[chosen]
