"""What a store has to say: one softmax under one mask over everything, written without the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import mlx.core as mx
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


HEADS, KV_HEADS, KEY_DIM, VALUE_DIM = 4, 2, 8, 6
SCALE = 0.5


class Tokens(NamedTuple):
    """What a layer projects of some tokens."""

    queries: mx.array
    keys: mx.array
    values: mx.array

    @property
    def size(self) -> int:
        return self.keys.shape[2]

    def cut(self, start: int, stop: int) -> Tokens:
        return Tokens(*(part[:, :, start:stop] for part in self))

    def then(self, other: Tokens) -> Tokens:
        return Tokens(
            *(mx.concatenate(list(pair), axis=2) for pair in zip(self, other, strict=True))
        )


def tokens(count: int, seed: int = 0, *, kv_heads: int = KV_HEADS) -> Tokens:
    parts = mx.random.split(mx.random.key(seed), 3)
    return Tokens(
        mx.random.normal((1, HEADS, count, KEY_DIM), key=parts[0]),
        mx.random.normal((1, kv_heads, count, KEY_DIM), key=parts[1]),
        mx.random.normal((1, kv_heads, count, VALUE_DIM), key=parts[2]),
    )


def mask(
    count: int, window: int | None, blocks: Sequence[tuple[int, int]] = ()
) -> NDArray[np.bool_]:
    """What each of `count` tokens sees; blocks are `(start, stop)` among all of them."""
    query, place = np.mgrid[:count, :count]
    seen = place <= query
    for start, stop in blocks:
        seen[start:stop, start:stop] = True
    return seen if window is None else seen & (query - place < window)


def softmax(
    all_tokens: Tokens, seen: NDArray[np.bool_], sinks: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """`[1, heads, T, value_dim]`, in double precision."""
    queries, keys, values = (np.array(part, np.float64) for part in all_tokens)
    group = queries.shape[1] // keys.shape[1]
    keys, values = np.repeat(keys, group, axis=1), np.repeat(values, group, axis=1)
    scores = np.where(seen, SCALE * queries @ keys.swapaxes(-1, -2), -np.inf)
    if sinks is not None:
        column = np.broadcast_to(sinks[None, :, None, None], (*scores.shape[:-1], 1))
        scores = np.concatenate([scores, column], axis=-1)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return weights[..., : keys.shape[2]] @ values


def expected(all_tokens: Tokens, window: int | None) -> NDArray[np.float64]:
    return softmax(all_tokens, mask(all_tokens.size, window))


def assert_same(found: NDArray[Any], right: NDArray[np.float64]) -> None:
    assert found.shape == right.shape
    np.testing.assert_allclose(found, right, atol=2e-5)
