"""What towers made of media: kept by content, and handed to the chunks of a prompt."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np

from phyla.engine.media import wrong_features
from phyla.family.model import Features

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from phyla.engine.media import MediaItem, PlacedMedia
    from phyla.family import Model


class FeatureCache:
    """Features by the content's digest, the least recently used dropped first.

    No namespace finds those of another, or how soon a reply begins would tell who sent what.

    Args:
        model: has the towers.
        limit: bytes that it may hold.

    Attributes:
        hits: how often features were there.
        misses: how often a tower had to run.
        nbytes: bytes that it holds.
    """

    def __init__(self, model: Model, limit: int) -> None:
        self._model = model
        self._limit = limit
        self._kept: OrderedDict[tuple[str, bytes], Features] = OrderedDict()
        self.hits = self.misses = self.nbytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, item: MediaItem, *, namespace: str) -> Features:
        """The features of an item; its tower runs if they are not there.

        Raises:
            PluginError: the tower made another number of them than the prompt has room for.
        """
        key = namespace, item.digest
        features = self._kept.get(key)
        if features is not None:
            self.hits += 1
            self._kept.move_to_end(key)
            return features
        self.misses += 1
        arrays = {name: mx.array(array) for name, array in item.arrays.items()}
        features = self._model.media_features(item.modality, arrays)
        for rows in (features.hidden, *features.deep):
            if rows.shape[0] != item.plan.count:
                raise wrong_features(item, rows.shape[0])
        mx.eval(features.hidden, *features.deep)
        item.forget()
        self._keep(key, features)
        return features

    def clear(self) -> None:
        """Forget all."""
        self._kept.clear()
        self.nbytes = 0

    def _keep(self, key: tuple[str, bytes], features: Features) -> None:
        size = _nbytes(features)
        if size > self._limit:
            return
        self._kept[key] = features
        self.nbytes += size
        while self.nbytes > self._limit:
            _, oldest = self._kept.popitem(last=False)
            self.nbytes -= _nbytes(oldest)


def _nbytes(features: Features) -> int:
    return sum(rows.nbytes for rows in (features.hidden, *features.deep))


@dataclass(frozen=True)
class Positions:
    """Where the tokens of a prompt with media stand.

    Attributes:
        axes: `[axes, N]` int32 for the prompt's N tokens.
    """

    axes: NDArray[np.int32]

    @cached_property
    def delta(self) -> int:
        """What to add to the number of a token that comes later."""
        return int(self.axes.max()) + 1 - self.axes.shape[1]

    def of(self, start: int, count: int) -> NDArray[np.int32]:
        """`[axes, count]`, also of tokens behind the prompt."""
        known = self.axes[:, start : start + count]
        first = start + known.shape[1]
        later = np.arange(first, start + count, dtype=np.int32) + self.delta
        return np.concatenate([known, np.broadcast_to(later, (len(known), len(later)))], axis=1)


def positions_of(
    model: Model, ids: Sequence[int], media: Sequence[PlacedMedia]
) -> Positions | None:
    """Where the tokens of a prompt stand; None where they simply follow one another."""
    if not media:
        return None
    runs = [run for placed in media for run in placed.runs]
    # Of what was read in part, the rest is to come.
    given = [*ids, *[0] * (media[-1].stop - len(ids))]
    axes = model.media_positions(np.array(given, dtype=np.int32), runs)
    return None if axes is None else Positions(np.ascontiguousarray(axes, dtype=np.int32))


@dataclass(frozen=True)
class ChunkMedia:
    """The media in a chunk of a prompt.

    Attributes:
        places: `(start, stop)` within the chunk, and the features that belong there.
        blocks: `(start, stop)` within the chunk of runs whose tokens see one another.
    """

    places: tuple[tuple[int, int, Features], ...] = ()
    blocks: tuple[tuple[int, int], ...] = ()

    def splice(self, embedded: mx.array) -> mx.array:
        """`[1, T, D]` with the features in their places."""
        return self._joined(embedded, [part.hidden for _, _, part in self.places], embedded)

    def deep(self, embedded: mx.array) -> tuple[mx.array, ...]:
        """For each layer that something is added after, `[1, T, D]` of it."""
        depth = max((len(part.deep) for _, _, part in self.places), default=0)
        nothing = mx.zeros_like(embedded)
        return tuple(
            self._joined(
                nothing,
                [
                    part.deep[layer] if layer < len(part.deep) else mx.zeros_like(part.hidden)
                    for _, _, part in self.places
                ],
                embedded,
            )
            for layer in range(depth)
        )

    def _joined(self, between: mx.array, rows: Sequence[mx.array], embedded: mx.array) -> mx.array:
        parts: list[mx.array] = []
        at = 0
        for (start, stop, _), row in zip(self.places, rows, strict=True):
            parts += [between[:, at:start], row[None].astype(embedded.dtype)]
            at = stop
        parts.append(between[:, at:])
        return mx.concatenate([part for part in parts if part.shape[1]], axis=1)


NO_MEDIA = ChunkMedia()


class MediaFeed:
    """Hands out a prompt's media, chunk by chunk.

    Args:
        media: in the order of their places.
        features: where their features are.
        atomic: whether the tokens of a picture see one another, so that no chunk may end in one.
        namespace: whose part of the features to use.
    """

    def __init__(
        self,
        media: Sequence[PlacedMedia],
        features: FeatureCache,
        *,
        atomic: bool,
        namespace: str = "",
    ) -> None:
        self._namespace = namespace
        self._media = media
        self._features = features
        self._blocks = [
            (run.start, run.stop)
            for placed in media
            for run in placed.runs
            if atomic and run.modality != "audio"
        ]
        # What the next chunk needs, or the last one ended in: a cache that keeps nothing does no harm.
        self._held: dict[int, Features] = {}

    def left(self, start: int) -> bool:
        """Whether there are media at or behind `start`."""
        return bool(self._media) and self._media[-1].stop > start

    def whole(self, start: int, stop: int) -> int:
        """Where a chunk may end that begins at `start` and would like to end at `stop`."""
        for first, end in self._blocks:
            if first < stop < end:
                return first if first > start else end
        return stop

    def look(self, start: int, stop: int) -> bool:
        """Let the tower run on one item between `start` and `stop`; whether there was one to do.

        Item by item, so that whoever waits, or wants to cancel, need not wait for all.
        """
        for number, placed in self._within(start, stop):
            if number not in self._held:
                self._held[number] = self._of(placed)
                return True
        return False

    def _within(self, start: int, stop: int) -> list[tuple[int, PlacedMedia]]:
        return [
            (number, placed)
            for number, placed in enumerate(self._media)
            if placed.stop > start and placed.start < stop
        ]

    def chunk(self, start: int, stop: int) -> ChunkMedia:
        """The media between `start` and `stop`; towers run where that was not done by `look`."""
        places: list[tuple[int, int, Features]] = []
        for number, placed in self._within(start, stop):
            features = self._held.get(number) or self._of(placed)
            seen = 0  # of the item's features
            for run in placed.runs:
                begin, end = max(run.start, start), min(run.stop, stop)
                if begin < end:
                    first = seen + begin - run.start
                    rows = slice(first, first + end - begin)
                    part = Features(
                        features.hidden[rows], tuple(deep[rows] for deep in features.deep)
                    )
                    places.append((begin - start, end - start, part))
                seen += run.stop - run.start
            if placed.stop > stop:
                self._held[number] = features
            else:
                self._held.pop(number, None)
        blocks = tuple(
            (first - start, end - start) for first, end in self._blocks if start <= first < stop
        )
        return ChunkMedia(tuple(places), blocks)

    def _of(self, placed: PlacedMedia) -> Features:
        return self._features.get(placed.item, namespace=self._namespace)
