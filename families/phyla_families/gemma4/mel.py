"""The log-mel frames of Gemma 4's audio tower."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from phyla.media import mel_filters

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from phyla_families.gemma4.settings import MelSettings


class MelFrames:
    """Samples to log-mel frames; only frames whose samples are all there count.

    Half a frame of silence stands before the first sample. A frame has one sample more than its
    window, and the last is not looked at.
    """

    def __init__(self, settings: MelSettings) -> None:
        self._settings = settings
        self._length = round(settings.sampling_rate * settings.frame_length_ms / 1000)
        self._hop = round(settings.sampling_rate * settings.hop_length_ms / 1000)
        self._lead = self._length // 2
        transform = 1 << (self._length - 1).bit_length()
        self._transform = 2 * transform if settings.fft_overdrive else transform

    def count(self, samples: int) -> int:
        """How many frames so many samples make."""
        return max(0, (samples + self._lead - self._length - 1) // self._hop + 1)

    def samples(self, frames: int) -> int:
        """The most samples that make so many frames."""
        return frames * self._hop + self._length - self._lead

    def __call__(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        """`[N]` to `[count(N), bins]`."""
        settings = self._settings
        led = np.concatenate([np.zeros(self._lead, np.float32), samples])
        starts = np.arange(self.count(len(samples))) * self._hop
        frames = led[starts[:, None] + np.arange(self._length)].astype(np.float64)
        angles = 2 * np.pi * np.arange(self._length) / self._length
        window = 0.5 - 0.5 * np.cos(angles)  # Hann's, periodic
        spectrum = np.fft.rfft(frames * settings.input_scale_factor * window, self._transform)
        mel = np.log(np.abs(spectrum) @ self._filters() + settings.mel_floor)
        if settings.per_bin_mean is not None:
            mel -= np.array(settings.per_bin_mean)
        if settings.per_bin_stddev is not None:
            mel /= np.array(settings.per_bin_stddev)
        return mel.astype(np.float32)

    def _filters(self) -> NDArray[np.float64]:
        settings = self._settings
        return mel_filters(
            settings.feature_size,
            self._transform,
            rate=settings.sampling_rate,
            low=settings.min_frequency,
            high=settings.max_frequency,
        )
