"""What a layer remembers: the kinds a family declares and the protocols its layers call.

The core allocates the stores; a family only says which kind each layer needs, one per layer, so
that the index is the layer. Shapes are per sequence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    import mlx.core as mx


@dataclass(frozen=True, kw_only=True)
class Full:
    """Keys and values of every token: `heads * (key_dim + value_dim)` values a token.

    With `bidirectional` the tokens of one media block see one another, also those that come later.
    """

    heads: int
    key_dim: int
    value_dim: int
    bidirectional: bool = False


@dataclass(frozen=True, kw_only=True)
class Sliding:
    """Keys and values of the last `window` tokens; a query sees itself and `window - 1` before.

    With `bidirectional` the tokens of one media block see one another, also those that come later,
    and still nothing further back than the window.
    """

    window: int
    heads: int
    key_dim: int
    value_dim: int
    bidirectional: bool = False


@dataclass(frozen=True, kw_only=True)
class Recurrent:
    """Fixed-size states (convolution, SSM, delta rule), one array per shape, starting at zero.

    A dtype of None stands for the activations' dtype.
    """

    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str | None, ...]


@dataclass(frozen=True)
class SharedWith:
    """Reads the keys and values that another, earlier layer stored; it sees what that layer sees."""

    layer: int


@dataclass(frozen=True)
class NoCache:
    """The layer remembers nothing."""


CacheKind: TypeAlias = Full | Sliding | Recurrent | SharedWith | NoCache


class AttentionCache(Protocol):
    """Stores keys and values and attends over them; the only place that knows masks and windows."""

    def attend(
        self,
        queries: mx.array,
        keys: mx.array,
        values: mx.array,
        *,
        scale: float,
        sinks: mx.array | None = None,
    ) -> mx.array:
        """Append this chunk's keys and values, and attend causally over all that is stored.

        Args:
            queries: `[B, heads, T, key_dim]`, already rotated.
            keys: `[B, kv_heads, T, key_dim]`, already rotated.
            values: `[B, kv_heads, T, value_dim]`.
            scale: multiplies the scores.
            sinks: `[heads]` logits that take part in the softmax and carry no value.

        Returns:
            `[B, heads, T, value_dim]`.
        """
        ...


class SharedAttentionCache(Protocol):
    """Attends over another layer's keys and values."""

    def attend(self, queries: mx.array, *, scale: float, sinks: mx.array | None = None) -> mx.array:
        """Attend causally over the other layer's store, this chunk included."""
        ...


class StateCache(Protocol):
    """Holds the states of a recurrent layer."""

    @property
    def states(self) -> tuple[mx.array, ...]:
        """The states after the tokens so far, each `[B, *shape]`."""
        ...

    def advance(self, *states: mx.array, tokens: int) -> None:
        """Replace the states with those after `tokens` more tokens."""
        ...
