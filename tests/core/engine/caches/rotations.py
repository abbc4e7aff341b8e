"""Rotary positions for the tokens that a store is fed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
from tests.core.engine.caches.oracle import Tokens

from phyla.family.rope import RopeConfig
from phyla.family.step import Step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from phyla.nn import Rope


ROPES = (
    RopeConfig(theta=100.0),
    RopeConfig(theta=100.0, partial_rotary_factor=0.5),
    RopeConfig(theta=100.0, type="linear", factor=4.0),
    RopeConfig(theta=100.0, type="yarn", factor=4.0, original_max_position_embeddings=32),
)


def rotated(part: mx.array, positions: Sequence[int], rope: Rope) -> mx.array:
    places = mx.array([list(positions)], dtype=mx.int32)
    return rope(Step(ids=places, positions=places, extents=(1000,)))(part)


def place(new: Tokens, positions: Sequence[int], rope: Rope) -> Tokens:
    queries, keys = (rotated(part, positions, rope) for part in new[:2])
    return Tokens(queries, keys, new.values)
