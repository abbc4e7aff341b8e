"""Rotary position embedding (Su et al. 2021, arXiv:2104.09864) and its long-context variants.

Half-split layout: dimension i rotates with dimension i + d/2, as in every Hugging Face checkpoint.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np

from phyla.nn.mrope import interleaved_axes, positions_of_pairs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from phyla.family import RopeConfig, Step


@dataclass(frozen=True)
class Rotation:
    """The rotation of one chunk: apply it to queries and keys `[B, heads, T, head_dim]`.

    Attributes:
        cos: `[B, 1, T, dims]`, each angle twice, in the order of the dimensions.
        sin: likewise, the first half negated.
    """

    cos: mx.array
    sin: mx.array

    def __call__(self, x: mx.array) -> mx.array:
        """Rotate the first `dims` of the last axis, and pass on the rest; the shape stays."""
        dims = self.cos.shape[-1]
        half = dims // 2
        turned = x if dims == x.shape[-1] else x[..., :dims]
        swapped = mx.concatenate([turned[..., half:], turned[..., :half]], axis=-1)
        out = turned * self.cos.astype(x.dtype) + swapped * self.sin.astype(x.dtype)
        return out if turned is x else mx.concatenate([out, x[..., dims:]], axis=-1)


class Rope:
    """Angles from positions; holds no parameters.

    Args:
        config: the rotary keys.
        head_dim: width of a head; `int(head_dim * partial_rotary_factor)` of it is rotated, by the
            type `proportional` all of it, most pairs by an angle of 0.
        max_positions: config.json's `max_position_embeddings`, from which YaRN and LongRoPE derive
            their factor when it is not given.

    Raises:
        ValueError: what is rotated is no even number of dimensions.
    """

    def __init__(self, config: RopeConfig, head_dim: int, max_positions: int | None = None) -> None:
        whole = config.type == "proportional"
        self.dims = head_dim if whole else int(head_dim * config.partial_rotary_factor)
        if self.dims < 2 or self.dims % 2:
            raise ValueError(
                f"Rope: what is rotated should be an even number of dimensions; found {self.dims} "
                f"of head_dim {head_dim}."
            )
        self.amplitude, frequencies = _frequencies(config, self.dims, max_positions)
        self._frequencies = mx.array(frequencies)
        self._long: mx.array | None = None
        self._boundary = config.original_max_position_embeddings or 0
        if config.type == "longrope":
            assert config.long_factor is not None
            self._long = mx.array(_base(config.theta, self.dims) / _row(config.long_factor))
        self._axes: mx.array | None = None
        if config.mrope_section is not None:
            self._axes = mx.array(interleaved_axes(config.mrope_section, self.dims // 2))

    def __call__(self, step: Step) -> Rotation:
        """The rotation for `step.positions`, or for `step.axes` where there are any.

        LongRoPE has two lists of factors; which one a sequence uses is decided once, by how long it
        may become (`step.extents`), so that keys already stored keep a rotation that fits.
        """
        positions = step.positions[..., None]
        if step.axes is not None:
            assert self._axes is not None, "a model with several axes has 'mrope_section'"
            positions = positions_of_pairs(step.axes, self._axes)
        angles = positions.astype(mx.float32) * self._rows(step)  # (B, T, dims/2)
        cos, sin = mx.cos(angles), mx.sin(angles)
        if self.amplitude != 1.0:
            cos, sin = cos * self.amplitude, sin * self.amplitude
        return Rotation(
            mx.concatenate([cos, cos], axis=-1)[:, None],
            mx.concatenate([-sin, sin], axis=-1)[:, None],
        )

    @property
    def extent_boundary(self) -> int | None:
        """LongRoPE: sequences that may grow longer than this use the other list of factors."""
        return None if self._long is None else self._boundary

    @property
    def turns(self) -> bool:
        """Whether `turn` is there: not for LongRoPE, whose angles depend on the sequence."""
        return self._long is None

    def turn(self, keys: mx.array, by: int) -> mx.array:
        """Move rotated keys `[B, heads, T, head_dim]` to positions `by` further on."""
        assert self.turns
        angles = by * self._frequencies
        cos, sin = mx.cos(angles), mx.sin(angles)
        return Rotation(mx.concatenate([cos, cos]), mx.concatenate([-sin, sin]))(keys)

    def _rows(self, step: Step) -> mx.array:
        if self._long is None:
            return self._frequencies
        sides = [extent > self._boundary for extent in step.extents]
        if not any(sides):
            return self._frequencies
        if all(sides):
            return self._long
        rows = [self._long if far else self._frequencies for far in sides]
        return mx.stack(rows)[:, None]


def _base(theta: float, dims: int) -> NDArray[np.float32]:
    exponents = np.arange(0, dims, 2, dtype=np.float32) / np.float32(dims)
    return (1.0 / np.power(np.float32(theta), exponents)).astype(np.float32)


def _row(values: tuple[float, ...]) -> NDArray[np.float32]:
    return np.array(values, dtype=np.float32)


def _frequencies(
    config: RopeConfig, dims: int, max_positions: int | None
) -> tuple[float, NDArray[np.float32]]:
    """The amplitude that multiplies cos and sin, and the `dims / 2` inverse frequencies."""
    base = _base(config.theta, dims)
    match config.type:
        case "default":
            return 1.0, base
        case "linear":
            assert config.factor is not None
            return 1.0, base / np.float32(config.factor)
        case "proportional":
            return 1.0, _proportional(config, base)
        case "factors":
            assert config.factors is not None
            return 1.0, base / _row(config.factors)
        case "llama3":
            return 1.0, _llama3(config, base)
        case "yarn":
            return _yarn(config, base, dims, max_positions)
        case "longrope":
            assert config.short_factor is not None
            return _longrope_amplitude(config, max_positions), base / _row(config.short_factor)


def _proportional(config: RopeConfig, base: NDArray[np.float32]) -> NDArray[np.float32]:
    """Gemma 4's rule: the fast pairs rotate as ever, the slow ones carry no position."""
    rotating = int(config.partial_rotary_factor * len(base))
    slow = np.arange(len(base)) >= rotating
    return np.where(slow, np.float32(0), base / np.float32(config.factor or 1.0))


def _llama3(config: RopeConfig, base: NDArray[np.float32]) -> NDArray[np.float32]:
    """Llama 3.1's rule: keep short waves, stretch long ones, blend between."""
    assert config.factor is not None
    assert config.low_freq_factor is not None
    assert config.high_freq_factor is not None
    assert config.original_max_position_embeddings is not None
    original = config.original_max_position_embeddings
    low, high = config.low_freq_factor, config.high_freq_factor
    waves = 2 * math.pi / base
    blend = np.clip((original / waves - low) / (high - low), 0.0, 1.0)
    return ((1 - blend) * base / config.factor + blend * base).astype(np.float32)


def _yarn(
    config: RopeConfig, base: NDArray[np.float32], dims: int, max_positions: int | None
) -> tuple[float, NDArray[np.float32]]:
    """YaRN (Peng et al. 2023, arXiv:2309.00071): interpolate slow dimensions, keep fast ones."""
    original = config.original_max_position_embeddings
    assert original is not None
    factor = config.factor or (max_positions or original) / original

    def dimension_of(rotations: float) -> float:
        return dims * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(config.theta))

    low, high = dimension_of(config.beta_fast or 32), dimension_of(config.beta_slow or 1)
    if config.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dims - 1)
    span = (high - low) or 0.001
    ramp = np.clip((np.arange(dims // 2, dtype=np.float32) - low) / span, 0, 1)
    frequencies = base / np.float32(factor) * ramp + base * (1 - ramp)

    def amplitude(weight: float) -> float:
        return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0

    if config.attention_factor is not None:
        scale = config.attention_factor
    elif config.mscale and config.mscale_all_dim:
        scale = amplitude(config.mscale) / amplitude(config.mscale_all_dim)
    else:
        scale = amplitude(1.0)
    return scale, frequencies.astype(np.float32)


def _longrope_amplitude(config: RopeConfig, max_positions: int | None) -> float:
    """LongRoPE (Ding et al. 2024, arXiv:2402.13753): the factor on cos and sin."""
    if config.attention_factor is not None:
        return config.attention_factor
    original = config.original_max_position_embeddings
    assert original is not None
    factor = config.factor or (max_positions or original) / original
    return 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
