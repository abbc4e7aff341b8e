"""Multimodal rotary positions (M-RoPE), interleaved: which axis turns which pair of dimensions.

A token stands at a time, a row and a column, which are equal for text. Qwen2-VL (Wang et al. 2024,
arXiv:2409.12191) gave each axis a block of a head's pairs, and so its own range of frequencies;
Qwen3-VL (Bai et al. 2025, arXiv:2511.21631) deals the pairs out in turn, so that each axis has all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx

if TYPE_CHECKING:
    from collections.abc import Sequence


def interleaved_axes(sections: Sequence[int], pairs: int) -> list[int]:
    """The axis of each pair, fastest first.

    Args:
        sections: how many pairs each axis gets; config.json's `mrope_section`. The first axis gets
            what the others leave, whatever its own number.
        pairs: how many there are, half of the rotated dimensions.

    Returns:
        For sections 3, 2, 1 of 6 pairs: `[0, 1, 2, 0, 1, 0]`.
    """
    count = len(sections)
    return [pair % count if pair < sections[pair % count] * count else 0 for pair in range(pairs)]


def positions_of_pairs(axes: mx.array, axis_of_pair: mx.array) -> mx.array:
    """From positions on each axis to the position that each pair turns by.

    Args:
        axes: `[axes, B, T]` int32; see `Step.axes`.
        axis_of_pair: `[pairs]` int32.

    Returns:
        `[B, T, pairs]` int32.
    """
    return mx.moveaxis(mx.take(axes, axis_of_pair, axis=0), 0, -1)
