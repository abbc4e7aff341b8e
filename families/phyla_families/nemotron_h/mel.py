"""The log-mel frames that Parakeet hears, as NeMo makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from phyla.media import mel_filters

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from phyla_families.nemotron_h.preprocessing import MelSettings

_FLOOR = 2.0**-24
_EPSILON = 1e-5

# Frames are worked out so many at a time: an hour of sound has 360,000.
_AT_ONCE = 512


class MelFrames:
    """Samples to frames; each bin is brought to a mean of 0 and a deviation of 1 over the clip.

    Args:
        settings: of the frames.
        bins: how many mel bins.
    """

    def __init__(self, settings: MelSettings, bins: int) -> None:
        self._settings = settings
        self._filters = mel_filters(
            bins, settings.n_fft, rate=settings.sampling_rate, scale="slaney", equal_area=True
        )

    def count(self, samples: int) -> int:
        """How many frames so many samples make, with the silent one at the end."""
        return 1 + samples // self._settings.hop_length

    def samples(self, frames: int) -> int:
        """The most samples that make so many frames."""
        return frames * self._settings.hop_length - 1

    def log_mel(self, samples: NDArray[np.float32]) -> NDArray[np.float64]:
        """`[N]` to `[count(N), bins]`, not normalized."""
        count = self.count(len(samples))
        mel = np.empty((count, self._filters.shape[1]))
        for start in range(0, count, _AT_ONCE):
            stop = min(start + _AT_ONCE, count)
            mel[start:stop] = self._block(samples, start, stop)
        return mel

    def _block(self, samples: NDArray[np.float32], start: int, stop: int) -> NDArray[np.float64]:
        """Frames from `start` to `stop`; each stands around its first sample."""
        settings = self._settings
        first = start * settings.hop_length - settings.n_fft // 2
        length = (stop - start - 1) * settings.hop_length + settings.n_fft
        wave = self._wave(samples, first, first + length)
        frames = sliding_window_view(wave, settings.n_fft)[:: settings.hop_length]
        power = np.abs(np.fft.rfft(frames * self._window(), axis=-1)) ** 2
        return np.log(power @ self._filters + _FLOOR)

    def _wave(self, samples: NDArray[np.float32], start: int, stop: int) -> NDArray[np.float64]:
        """Samples from `start` to `stop` with high pitches raised, in silence that has no end."""
        low, high = max(start, 0), min(stop, len(samples))
        wave = samples[low:high].astype(np.float64)
        # Before the first sample there is none to subtract.
        before = samples[max(low - 1, 0) : high - 1].astype(np.float64)
        wave[len(wave) - len(before) :] -= self._settings.preemphasis * before
        return np.pad(wave, (low - start, stop - high))

    def __call__(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        """`[N]`, at least two hops, to `[count(N), bins]`; the last frame is zero."""
        mel = self.log_mel(samples)
        heard = mel[: len(samples) // self._settings.hop_length]
        heard -= heard.mean(axis=0)
        variance = np.einsum("fb,fb->b", heard, heard) / (len(heard) - 1)
        heard /= np.sqrt(variance) + _EPSILON
        mel[len(heard) :] = 0
        return mel.astype(np.float32)

    def _window(self) -> NDArray[np.float64]:
        """Hann's, symmetric, in the middle of a frame."""
        settings = self._settings
        before = (settings.n_fft - settings.win_length) // 2
        after = settings.n_fft - settings.win_length - before
        return np.pad(np.hanning(settings.win_length), (before, after))
