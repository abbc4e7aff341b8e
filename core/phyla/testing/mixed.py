"""A toy family whose models have a layer of every cache kind, for tests of the engine itself.

It stands for hybrid architectures: some layers keep every token, some a window, one a state, and
some share. `layers` in its config is a word of letters: `f` full attention, `w` a window, `r` a
recurrence, `s` attention over what the layer before the last attention layer stored, `m` an MLP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import mlx.core as mx
import mlx.nn as nn

from phyla.family import (
    CacheKind,
    Dialect,
    Family,
    FamilyConfig,
    Full,
    Model,
    NoCache,
    ReasoningMarks,
    Recurrent,
    SharedWith,
    Sliding,
)
from phyla.nn import GatedMLP
from phyla.testing.registries import registry_of
from phyla.tools.hermes import HermesFormat

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from phyla.checkpoint import Checkpoint
    from phyla.family import Step
    from phyla.registry import Registry

_HEADS, _KV_HEADS, _HEAD_DIM = 4, 2, 8
WIDTH = 32


class MixedConfig(FamilyConfig):
    """What the letters of `layers` mean is said above; `window` is the window of `w`.

    With `bidirectional` a picture's tokens see one another there.
    """

    family: ClassVar[str] = "mixed"

    layers: str
    window: int = 8
    bidirectional: bool = False

    @property
    def context_length(self) -> int | None:
        return 4096


def mixed(layers: str, *, window: int = 8) -> Mapping[str, Any]:
    """A config.json of the toy family."""
    return {"model_type": "mixed", "vocab_size": 272, "layers": layers, "window": window}


class _Attention(nn.Module):
    def __init__(self, kind: Full | Sliding | SharedWith) -> None:
        super().__init__()
        self.kind = kind
        self.norm = nn.RMSNorm(WIDTH)
        self.q_proj = nn.Linear(WIDTH, _HEADS * _HEAD_DIM)
        if not isinstance(kind, SharedWith):
            self.k_proj = nn.Linear(WIDTH, _KV_HEADS * _HEAD_DIM)
            self.v_proj = nn.Linear(WIDTH, _KV_HEADS * _HEAD_DIM)
        self.o_proj = nn.Linear(_HEADS * _HEAD_DIM, WIDTH)

    def __call__(self, hidden: mx.array, cache: Any) -> mx.array:
        normed = self.norm(hidden)
        queries, scale = _split(self.q_proj(normed)), _HEAD_DIM**-0.5
        if isinstance(self.kind, SharedWith):
            out = cache.attend(queries, scale=scale)
        else:
            keys, values = _split(self.k_proj(normed)), _split(self.v_proj(normed))
            out = cache.attend(queries, keys, values, scale=scale)
        return hidden + self.o_proj(out.swapaxes(1, 2).flatten(2))


def _split(x: mx.array) -> mx.array:
    return x.reshape(*x.shape[:2], -1, _HEAD_DIM).swapaxes(1, 2)


class _Recurrence(nn.Module):
    """Leaky sums: `s_t = decay * s_(t-1) + x_t`, with the first token's neighbour beside them."""

    kind = Recurrent(shapes=((WIDTH,), (1, WIDTH)), dtypes=("float32", None))

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(WIDTH)
        self.in_proj = nn.Linear(WIDTH, WIDTH)
        self.out_proj = nn.Linear(2 * WIDTH, WIDTH)
        self.decay = mx.zeros((WIDTH,))

    def __call__(self, hidden: mx.array, cache: Any) -> mx.array:
        x = self.in_proj(self.norm(hidden))
        count = x.shape[1]
        before, previous = cache.states
        decay = mx.sigmoid(self.decay).astype(mx.float32)
        ages = mx.arange(count)[:, None] - mx.arange(count)  # (T, T)
        powers = mx.where(ages[..., None] >= 0, decay ** mx.maximum(ages, 0)[..., None], 0.0)
        sums = (powers[None] * x.astype(mx.float32)[:, None]).sum(axis=2)  # (B, T, D)
        sums = sums + before[:, None] * decay ** (mx.arange(count) + 1)[:, None]
        shifted = mx.concatenate([previous, x], axis=1)
        cache.advance(sums[:, -1], shifted[:, -1:], tokens=count)
        both = mx.concatenate([mx.tanh(sums).astype(x.dtype), shifted[:, :-1]], axis=-1)
        return hidden + self.out_proj(both)


class _FeedForward(nn.Module):
    kind = NoCache()

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(WIDTH)
        self.mlp = GatedMLP(WIDTH, 48)

    def __call__(self, hidden: mx.array, cache: Any) -> mx.array:
        return hidden + self.mlp(self.norm(hidden))


class MixedModel(Model):
    """Embedding, the layers that the config spells, a norm, and a head."""

    def __init__(self, config: MixedConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, WIDTH)
        self.layers: list[_Attention | _Recurrence | _FeedForward] = []
        stored = 0
        for index, letter in enumerate(config.layers):
            match letter:
                case "f":
                    self.layers.append(
                        _Attention(Full(heads=_KV_HEADS, key_dim=_HEAD_DIM, value_dim=_HEAD_DIM))
                    )
                case "w":
                    kind = Sliding(
                        window=config.window,
                        heads=_KV_HEADS,
                        key_dim=_HEAD_DIM,
                        value_dim=_HEAD_DIM,
                        bidirectional=config.bidirectional,
                    )
                    self.layers.append(_Attention(kind))
                case "s":
                    self.layers.append(_Attention(SharedWith(stored)))
                case "r":
                    self.layers.append(_Recurrence())
                case _:
                    self.layers.append(_FeedForward())
            if letter in "fw":
                stored = index
        self.norm = nn.RMSNorm(WIDTH)
        self.lm_head = nn.Linear(WIDTH, config.vocab_size, bias=False)

    def cache_kinds(self) -> Sequence[CacheKind]:
        return [layer.kind for layer in self.layers]

    def embed(self, step: Step) -> mx.array:
        return self.embed_tokens(step.ids)

    def __call__(self, hidden: mx.array, step: Step, caches: Sequence[Any]) -> mx.array:
        for index, (layer, cache) in enumerate(zip(self.layers, caches, strict=True)):
            hidden = layer(hidden, cache)
            step.tap(index, hidden)
        return self.norm(hidden)

    def logits(self, hidden: mx.array) -> mx.array:
        return self.lm_head(hidden)


def _dialect(checkpoint: Checkpoint) -> Dialect:
    return Dialect(
        name="mixed",
        extra_eos=("<|im_end|>",),
        reasoning=ReasoningMarks(open="<think>", close="</think>", ending="\n</think>\n\n"),
        tools=HermesFormat(),
        call_ends=("</tool_call>",),
    )


MIXED = Family(
    name="mixed",
    model_types=("mixed",),
    config=MixedConfig,
    model=MixedModel,
    dialect=_dialect,
)


def mixed_registry() -> Registry:
    """A registry that knows the toy family and no other."""
    return registry_of(MIXED)
