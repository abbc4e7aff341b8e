"""What one sequence remembers: a store for each layer, forked, cut and restored together.

Knows no tokens: what was fed is known to whoever feeds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import mlx.core as mx
from typing_extensions import assert_never

from phyla.engine.caches import (
    MARGIN,
    EmptyCache,
    FullCache,
    RecurrentCache,
    SharedCache,
    SlidingCache,
    Window,
)
from phyla.engine.tape import BLOCK, codec
from phyla.family import Full, NoCache, Recurrent, SharedWith, Sliding

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from phyla.engine.caches import Blocks
    from phyla.engine.tape import Codec
    from phyla.family import CacheKind
    from phyla.kv_quantization import KVQuantization

LayerStore: TypeAlias = FullCache | RecurrentCache | SharedCache | EmptyCache
_Storing: TypeAlias = FullCache | RecurrentCache
_Moment: TypeAlias = Window | tuple[mx.array, ...] | None


@dataclass(frozen=True)
class Snapshot:
    """What cannot be cut from a longer sequence: windows and states, as they were at `length`.

    Layers that keep every token are left out; they are cut instead.
    """

    length: int
    moments: tuple[_Moment, ...]

    @property
    def arrays(self) -> list[mx.array]:
        """What has to be evaluated before the sequence goes on."""
        arrays: list[mx.array] = []
        for moment in self.moments:
            if moment is not None:
                arrays += moment.arrays if isinstance(moment, Window) else moment
        return arrays

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays)


class Layers:
    """The stores of one sequence; hand `stores` to the model."""

    def __init__(self, stores: Sequence[LayerStore]) -> None:
        self.stores = list(stores)

    @property
    def length(self) -> int:
        """How many tokens the layers were fed."""
        return max((store.length for store in self.stores), default=0)

    @property
    def floor(self) -> int:
        """The shortest length that `cut` can reach."""
        return max((store.floor for store in self.stores), default=0)

    @property
    def arrays(self) -> list[mx.array]:
        """What has to be evaluated for the stores to be up to date."""
        return [array for store in self.stores for array in store.arrays]

    @property
    def nbytes(self) -> int:
        return sum(store.nbytes for store in self.stores)

    def reserve(self, tokens: int) -> None:
        """Make the next buffers just large enough for `tokens` tokens in all."""
        for store in self.stores:
            store.reserve(tokens)

    def begin(self, blocks: Blocks) -> None:
        """Say which of the next chunk's tokens form media blocks: `(start, stop)` within it."""
        for store in self.stores:
            if isinstance(store, FullCache):
                store.blocks = blocks

    def cut(self, length: int) -> None:
        """Forget what came after the first `length` tokens, not fewer than `floor`."""
        for store in self.stores:
            store.cut(length)

    def fork(self, length: int) -> Layers:
        """The first `length` tokens, not fewer than `floor`; memory is shared until one appends."""
        return self._each(lambda index, store: store.fork(length))

    def mark(self) -> Layers:
        """The layers as they are now, to return to if the next step is not to be.

        Drop it before the next step is computed: as long as it lives, that step has to copy.
        """
        return self._each(lambda index, store: store.mark())

    def reset(self, mark: Layers) -> None:
        """Return to a mark."""
        self.stores = mark.stores

    def compact(self) -> None:
        """Give back memory that is kept for what is to come."""
        for store in self.stores:
            before = store.arrays
            store.compact()
            # One store after another, so that no more than one is there twice.
            mx.eval([new for new in store.arrays if not any(new is old for old in before)])

    # Snapshots.

    def snapshot(self) -> Snapshot:
        """Keep this moment; evaluates what is kept."""
        moments = tuple(
            store.snapshot() if isinstance(store, (SlidingCache, RecurrentCache)) else None
            for store in self.stores
        )
        snapshot = Snapshot(self.length, moments)
        mx.eval(snapshot.arrays)
        return snapshot

    def fork_at(self, snapshot: Snapshot) -> Layers:
        """These layers as they were when the snapshot was taken; must hold at least its tokens."""

        def back(index: int, store: _Storing) -> _Storing:
            moment = snapshot.moments[index]
            return store.fork(snapshot.length) if moment is None else _at(store, moment, snapshot)

        return self._each(back)

    def restore(self, snapshot: Snapshot) -> None:
        """Return to the moment of the snapshot, in place."""

        def back(index: int, store: _Storing) -> _Storing:
            moment = snapshot.moments[index]
            if moment is not None:
                return _at(store, moment, snapshot)
            store.cut(snapshot.length)
            return store

        self.stores = self._each(back).stores

    # Context shift.

    @property
    def can_shift(self) -> bool:
        """Whether tokens can be dropped from the middle, as far as the stores are concerned."""
        return not any(isinstance(store, RecurrentCache) for store in self.stores)

    def drop(self, start: int, stop: int, turn: Callable[[int, mx.array, int], mx.array]) -> None:
        """Forget the tokens from `start` up to `stop`; those behind move up.

        `turn(layer, keys, by)` rotates a layer's keys to positions that are `by` further on.
        """
        for index, store in enumerate(self.stores):
            if isinstance(store, FullCache):
                store.drop(start, stop, lambda keys, by, layer=index: turn(layer, keys, by))
        mx.eval(self.arrays)

    def _each(self, make: Callable[[int, _Storing], _Storing]) -> Layers:
        """New layers out of these; those that share another's store share its new one."""
        made: dict[int, FullCache] = {}
        layers: list[LayerStore] = []
        for index, store in enumerate(self.stores):
            match store:
                case FullCache() | RecurrentCache():
                    new = make(index, store)
                    if isinstance(new, FullCache):
                        made[id(store)] = new
                    layers.append(new)
                case SharedCache():
                    layers.append(store.over(made))
                case EmptyCache():
                    layers.append(store)
        return Layers(layers)


def _at(store: _Storing, moment: Window | tuple[mx.array, ...], snapshot: Snapshot) -> _Storing:
    if isinstance(moment, Window):
        assert isinstance(store, SlidingCache)
        return store.at(moment, snapshot.length)
    assert isinstance(store, RecurrentCache)
    return store.at(moment, snapshot.length)


@dataclass(frozen=True)
class Allocation:
    """How a model's layers are stored, and what that costs.

    Attributes:
        kinds: one per layer.
        dtype: the activations' type, in which keys, values and most states are kept.
        quantized: how keys and values are kept smaller, if they are.
    """

    kinds: tuple[CacheKind, ...]
    dtype: mx.Dtype
    quantized: KVQuantization | None = None

    def layers(self) -> Layers:
        """Empty layers for one sequence."""
        stores: list[LayerStore] = []
        for kind in self.kinds:
            match kind:
                case Full():
                    stores.append(FullCache(kind, *self._codecs(kind)))
                case Sliding():
                    stores.append(SlidingCache(kind, *self._codecs(kind)))
                case Recurrent():
                    stores.append(RecurrentCache(kind, self.dtype))
                case SharedWith(layer=layer):
                    source = stores[layer]
                    assert isinstance(source, FullCache), "shares with a layer that stores"
                    stores.append(SharedCache(source))
                case NoCache():
                    stores.append(EmptyCache())
                case _:
                    assert_never(kind)
        return Layers(stores)

    @property
    def bidirectional(self) -> bool:
        """Whether the tokens of a picture see one another in some layer."""
        return any(isinstance(kind, (Full, Sliding)) and kind.bidirectional for kind in self.kinds)

    @property
    def cuttable(self) -> bool:
        """Whether a sequence can be cut at any length, so that no snapshot is ever needed."""
        return not any(isinstance(kind, (Sliding, Recurrent)) for kind in self.kinds)

    def nbytes(self, tokens: int, chunk: int = 0) -> int:
        """Bytes that a sequence of so many tokens takes at most, fed `chunk` of them at once."""
        total = 0
        for kind in self.kinds:
            match kind:
                case Full():
                    total += -(-tokens // BLOCK) * BLOCK * self._token_bytes(kind)
                case Sliding(window=window):
                    needed = window - 1 + MARGIN
                    most = needed + max(BLOCK, needed // 2, chunk)
                    total += min(-(-tokens // BLOCK) * BLOCK, most) * self._token_bytes(kind)
                case Recurrent(shapes=shapes, dtypes=dtypes):
                    for shape, name in zip(shapes, dtypes, strict=True):
                        size = (self.dtype if name is None else getattr(mx, name)).size
                        for width in shape:
                            size *= width
                        total += size
                case SharedWith() | NoCache():
                    pass
                case _:
                    assert_never(kind)
        return total

    @property
    def snapshot_nbytes(self) -> int:
        """Bytes of a snapshot: the windows, full, and the states."""
        total = self.nbytes(0)
        for kind in self.kinds:
            if isinstance(kind, Sliding):
                total += (kind.window - 1) * self._token_bytes(kind)
        return total

    @property
    def token_bytes(self) -> int:
        """Bytes that one more token costs, beyond windows and states."""
        return sum(self._token_bytes(kind) for kind in self.kinds if isinstance(kind, Full))

    def _token_bytes(self, kind: Full | Sliding) -> int:
        keys, values = self._codecs(kind)
        size = self.dtype.size
        return kind.heads * (
            keys.token_bytes(kind.key_dim, size) + values.token_bytes(kind.value_dim, size)
        )

    def _codecs(self, kind: Full | Sliding) -> tuple[Codec, Codec]:
        quantized = self.quantized
        return (
            codec(kind.key_dim, None if quantized is None else quantized.keys),
            codec(kind.value_dim, None if quantized is None else quantized.values),
        )
