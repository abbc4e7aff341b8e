"""A toy family that reads images, audio and videos, for tests of the engine itself.

Its layers are those of `phyla.testing.mixed`. An image of W x H pixels is W // 4 x H // 4 soft
tokens between two marks, a video the same for each frame behind its time, audio one soft token for
each tenth of a second. Positions have two axes: a picture's rows and columns begin where it stands,
and what follows it stands behind the longer of its sides.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from phyla.family import (
    Dialect,
    Family,
    Features,
    MediaReader,
    MediaReaders,
    MediaRequest,
    Plan,
    Prepared,
    Soft,
)
from phyla.testing.mixed import MIXED, WIDTH, MixedConfig, MixedModel
from phyla.testing.registries import registry_of
from phyla.testing.sight import template
from phyla.testing.tiny import Tiny
from phyla.testing.tokenizer import MARKS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from phyla.checkpoint import Checkpoint
    from phyla.family import MediaRun, Step
    from phyla.media import AudioClip, ImageFile, VideoClip
    from phyla.modality import Modality
    from phyla.registry import Registry

_PATCH = 4
_RATE = 1000
_SAMPLES = 100

SIGHTED_MARKS = (*MARKS, "<image>", "<audio>", "<video>", "<img>", "</img>")

SIGHTED_TEMPLATE = template(image="<image>", audio="<audio>", video="<video>")


class SightedConfig(MixedConfig):
    """As the other toy family's; `senses` are the modalities that there are towers for."""

    family: ClassVar[str] = "sighted"

    senses: tuple[str, ...] = ("image", "audio", "video")


def sighted(
    layers: str, *, bidirectional: bool = False, senses: Sequence[str] = ("image", "audio", "video")
) -> Tiny:
    """A tiny checkpoint of the toy family."""
    config = {
        "model_type": "sighted",
        "vocab_size": 280,
        "layers": layers,
        "bidirectional": bidirectional,
        "senses": list(senses),
    }
    return Tiny(layers, config, SIGHTED_TEMPLATE, SIGHTED_MARKS)


def _patches(pictures: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """`[T, H, W, 3]` in patches `[N, 48]`; what is left at the right and at the bottom is cut."""
    count, height, width = pictures.shape[:3]
    rows, columns = height // _PATCH, width // _PATCH
    cut = pictures[:, : rows * _PATCH, : columns * _PATCH]
    cells = cut.reshape(count, rows, _PATCH, columns, _PATCH, 3).swapaxes(2, 3)
    return np.ascontiguousarray(cells).reshape(-1, _PATCH * _PATCH * 3)


def _grid(size: tuple[int, int]) -> tuple[int, int]:
    width, height = size
    if width < _PATCH or height < _PATCH:
        raise ValueError(f"it has less than {_PATCH} pixels on a side")
    return height // _PATCH, width // _PATCH


class _Images(MediaReader["ImageFile"]):
    token = "<image>"

    def plan(self, item: ImageFile, request: MediaRequest) -> Plan:
        grid = _grid(item.size)
        return Plan(pieces=("<img>", Soft("<image>", grid[0] * grid[1], grid), "</img>"))

    def prepare(self, item: ImageFile, plan: Plan) -> Prepared:
        pixels = item.pixels()
        return Prepared({"patches": _patches(pixels[None])}, lambda: [("image", pixels)])


class _Videos(MediaReader["VideoClip"]):
    token = "<video>"

    def plan(self, item: VideoClip, request: MediaRequest) -> Plan:
        grid = _grid(item.size)
        frames = range(item.count)[: request.max_frames]
        if request.max_tokens is not None:
            frames = frames[: max(1, request.max_tokens // (grid[0] * grid[1]))]
        pieces: list[str | Soft] = []
        for frame in frames:
            pieces += [f"{item.timestamps[frame]:.1f}", Soft("<video>", grid[0] * grid[1], grid)]
        return Plan(pieces=tuple(pieces), layout=tuple(frames))

    def prepare(self, item: VideoClip, plan: Plan) -> Prepared:
        assert isinstance(plan.layout, tuple)
        frames = item.frames(plan.layout)
        return Prepared({"patches": _patches(frames)}, lambda: [("frame", f) for f in frames])


class _Sounds(MediaReader["AudioClip"]):
    token = "<audio>"
    before, after = "(", ")"

    def plan(self, item: AudioClip, request: MediaRequest) -> Plan:
        return Plan(pieces=(Soft("<audio>", -(-len(item.samples(_RATE)) // _SAMPLES)),))

    def prepare(self, item: AudioClip, plan: Plan) -> Prepared:
        samples = item.samples(_RATE)
        padded = np.pad(samples, (0, plan.count * _SAMPLES - len(samples)))
        return Prepared({"frames": padded.reshape(-1, _SAMPLES)}, list)


class SightedModel(MixedModel):
    """The other toy model with a linear layer as each tower, and positions on two axes."""

    def __init__(self, config: SightedConfig) -> None:
        super().__init__(config)
        self.looks = 0  # how often a tower ran
        self.where = nn.Linear(2, WIDTH, bias=False)
        self.deep = nn.Linear(WIDTH, WIDTH)
        if {"image", "video"} & set(config.senses):
            self.eye = nn.Linear(3 * _PATCH**2, WIDTH)
        if "audio" in config.senses:
            self.ear = nn.Linear(_SAMPLES, WIDTH)

    def media_features(self, modality: Modality, arrays: Mapping[str, mx.array]) -> Features:
        self.looks += 1
        if modality == "audio":
            return Features(self.ear(arrays["frames"]))
        seen = self.eye(arrays["patches"].astype(mx.float32) / 255)
        return Features(seen, (mx.tanh(self.deep(seen)),))

    def media_positions(
        self, ids: NDArray[np.int32], runs: Sequence[MediaRun]
    ) -> NDArray[np.int32] | None:
        axes = np.zeros((2, len(ids)), dtype=np.int32)
        at = done = 0
        for run in runs:
            if run.grid is None:
                continue
            before = run.start - done
            axes[:, done : run.start] = at + np.arange(before)
            at += before
            rows, columns = run.grid
            axes[0, run.start : run.stop] = at + np.repeat(np.arange(rows), columns)
            axes[1, run.start : run.stop] = at + np.tile(np.arange(columns), rows)
            at += max(rows, columns)
            done = run.stop
        axes[:, done:] = at + np.arange(len(ids) - done)
        return axes

    def __call__(self, hidden: mx.array, step: Step, caches: Sequence[Any]) -> mx.array:
        axes = mx.stack([step.positions, step.positions]) if step.axes is None else step.axes
        hidden = hidden + mx.sin(self.where(mx.moveaxis(axes, 0, -1).astype(hidden.dtype)))
        for index, (layer, cache) in enumerate(zip(self.layers, caches, strict=True)):
            hidden = layer(hidden, cache)
            if index < len(step.deep):
                hidden = hidden + step.deep[index]
            step.tap(index, hidden)
        return self.norm(hidden)


def _readers(config: SightedConfig, checkpoint: Checkpoint) -> MediaReaders:
    senses = set(config.senses)
    return MediaReaders(
        image=_Images() if "image" in senses else None,
        audio=_Sounds() if "audio" in senses else None,
        video=_Videos() if "video" in senses else None,
    )


def _dialect(checkpoint: Checkpoint) -> Dialect:
    return replace(MIXED.dialect(checkpoint), unsaid=("<img>", "</img>"))


SIGHTED = Family(
    name="sighted",
    model_types=("sighted",),
    config=SightedConfig,
    model=SightedModel,
    dialect=_dialect,
    media=_readers,
)


def sighted_registry() -> Registry:
    """A registry that knows the toy family and no other."""
    return registry_of(SIGHTED)
