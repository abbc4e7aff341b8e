"""The log-mel frames that Parakeet hears, as NeMo makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from phyla_families.nemotron_h.preprocessing import MelSettings

_FLOOR = 2.0**-24
_EPSILON = 1e-5

# Slaney's scale of mels: linear up to 1000 hertz, then logarithmic.
_HERTZ_PER_MEL = 200 / 3
_KNEE = 1000.0
_LOG_STEP = np.log(6.4) / 27


class MelFrames:
    """Samples to frames; each bin is brought to a mean of 0 and a deviation of 1 over the clip.

    Args:
        settings: of the frames.
        bins: how many mel bins.
    """

    def __init__(self, settings: MelSettings, bins: int) -> None:
        self._settings = settings
        self._filters = _filters(settings, bins)

    def count(self, samples: int) -> int:
        """How many frames so many samples make, with the silent one at the end."""
        return 1 + samples // self._settings.hop_length

    def samples(self, frames: int) -> int:
        """The most samples that make so many frames."""
        return frames * self._settings.hop_length - 1

    def log_mel(self, samples: NDArray[np.float32]) -> NDArray[np.float64]:
        """`[N]` to `[count(N), bins]`, not normalized."""
        settings = self._settings
        wave = samples.astype(np.float64)
        wave[1:] -= settings.preemphasis * wave[:-1].copy()
        half = settings.n_fft // 2
        padded = np.pad(wave, (half, half))
        starts = np.arange(self.count(len(samples))) * settings.hop_length
        frames = padded[starts[:, None] + np.arange(settings.n_fft)]
        spectrum = np.fft.rfft(frames * self._window(), axis=-1)
        return np.log(np.abs(spectrum) ** 2 @ self._filters + _FLOOR)

    def __call__(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        """`[N]`, at least two hops, to `[count(N), bins]`; the last frame is zero."""
        mel = self.log_mel(samples)
        heard = mel[: len(samples) // self._settings.hop_length]
        normed = (heard - heard.mean(axis=0)) / (heard.std(axis=0, ddof=1) + _EPSILON)
        return np.pad(normed, ((0, len(mel) - len(heard)), (0, 0))).astype(np.float32)

    def _window(self) -> NDArray[np.float64]:
        """Hann's, symmetric, in the middle of a frame."""
        settings = self._settings
        before = (settings.n_fft - settings.win_length) // 2
        after = settings.n_fft - settings.win_length - before
        return np.pad(np.hanning(settings.win_length), (before, after))


def _filters(settings: MelSettings, bins: int) -> NDArray[np.float64]:
    """Triangles of equal area, evenly spaced in mels: `[n_fft / 2 + 1, bins]`."""
    highest = settings.sampling_rate / 2
    corners = _hertz(np.linspace(0, _mels(highest), bins + 2))
    hertz = np.linspace(0, highest, settings.n_fft // 2 + 1)[:, None]
    widths = np.diff(corners)
    rising = (hertz - corners[:-2]) / widths[:-1]
    falling = (corners[2:] - hertz) / widths[1:]
    return np.maximum(0, np.minimum(rising, falling)) * (2 / (corners[2:] - corners[:-2]))


def _mels(hertz: float) -> float:
    if hertz < _KNEE:
        return hertz / _HERTZ_PER_MEL
    return _KNEE / _HERTZ_PER_MEL + float(np.log(hertz / _KNEE)) / _LOG_STEP


def _hertz(mels: NDArray[np.float64]) -> NDArray[np.float64]:
    knee = _KNEE / _HERTZ_PER_MEL
    above = _KNEE * np.exp(_LOG_STEP * (np.maximum(mels, knee) - knee))
    return np.where(mels < knee, mels * _HERTZ_PER_MEL, above)
