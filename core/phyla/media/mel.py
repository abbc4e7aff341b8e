"""Mel scales, and the filters that sum a spectrum up by them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

MelScale = Literal["htk", "slaney"]

# Slaney's scale: linear up to 1000 hertz, then logarithmic.
_HERTZ_PER_MEL = 200 / 3
_KNEE = 1000.0
_LOG_STEP = np.log(6.4) / 27


def mel_filters(
    bins: int,
    transform: int,
    *,
    rate: int,
    low: float = 0.0,
    high: float | None = None,
    scale: MelScale = "htk",
    equal_area: bool = False,
) -> NDArray[np.float64]:
    """Triangles between frequencies that are evenly spaced in mels: `[transform / 2 + 1, bins]`.

    Args:
        bins: how many triangles.
        transform: the length of the Fourier transform, in samples.
        rate: samples per second.
        low: where the lowest triangle begins, in hertz.
        high: where the highest ends; half of `rate` when it is None.
        scale: of mels. `htk` is 2595 log10(1 + hertz / 700), as in the HMM toolkit; `slaney` that of
            Slaney's Auditory Toolbox (1998): linear up to 1000 hertz, then logarithmic.
        equal_area: whether all have the same area; else the same height, 1.
    """
    to_mels, to_hertz = _SCALES[scale]
    ends = to_mels(np.array([low, rate / 2 if high is None else high]))
    corners = to_hertz(np.linspace(ends[0], ends[1], bins + 2))
    hertz = np.linspace(0, rate / 2, transform // 2 + 1)[:, None]
    widths = np.diff(corners)
    rising = (hertz - corners[:-2]) / widths[:-1]
    falling = (corners[2:] - hertz) / widths[1:]
    filters = np.maximum(0, np.minimum(rising, falling))
    return filters * (2 / (corners[2:] - corners[:-2])) if equal_area else filters


def _htk_mels(hertz: Floats) -> Floats:
    return 2595 * np.log10(1 + hertz / 700)


def _htk_hertz(mels: Floats) -> Floats:
    return 700 * (10 ** (mels / 2595) - 1)


def _slaney_mels(hertz: Floats) -> Floats:
    above = _KNEE / _HERTZ_PER_MEL + np.log(np.maximum(hertz, _KNEE) / _KNEE) / _LOG_STEP
    return np.where(hertz < _KNEE, hertz / _HERTZ_PER_MEL, above)


def _slaney_hertz(mels: Floats) -> Floats:
    knee = _KNEE / _HERTZ_PER_MEL
    above = _KNEE * np.exp(_LOG_STEP * (np.maximum(mels, knee) - knee))
    return np.where(mels < knee, mels * _HERTZ_PER_MEL, above)


_SCALES: dict[MelScale, tuple[Callable[[Floats], Floats], Callable[[Floats], Floats]]] = {
    "htk": (_htk_mels, _htk_hertz),
    "slaney": (_slaney_mels, _slaney_hertz),
}
