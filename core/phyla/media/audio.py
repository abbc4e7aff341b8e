"""Sounds: decoded and mixed down to one channel when opened, resampled when asked for."""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from phyla.media.arrays import as_array
from phyla.media.containers import decoded, opened
from phyla.media.item import Item
from phyla.media.sources import find

if TYPE_CHECKING:
    from av.audio.frame import AudioFrame
    from av.container import InputContainer
    from numpy.typing import NDArray

    from phyla.errors import MediaError
    from phyla.media.limits import MediaLimits
    from phyla.media.sources import Blob

# Above it there is no sound, only a header that lies and asks for much memory.
_HIGHEST_RATE = 768_000
_MOST_CHANNELS = 8
# How far beyond -1..1 floats may lie; decoders overshoot a little, and so do mixes.
_LOUDEST = 2.0


class AudioClip:
    """A sound of one channel. Make one with `open_audio`.

    Attributes:
        rate: samples per second, as in the source.
        seconds: how long what really decodes lasts.
    """

    def __init__(self, native: NDArray[np.float32], rate: int, item: Item) -> None:
        self.rate = rate
        self.seconds = len(native) / rate
        self._native = native
        self._item = item

    def samples(self, rate: int) -> NDArray[np.float32]:
        """The sound at a rate of its own: [N] from -1 to 1, the mean of the channels.

        The channels are mixed first, then resampled (by soxr, as `librosa.resample` does it): N is
        `seconds * rate`, rounded up.

        Raises:
            MediaError: soxr is missing, or the rate is no positive integer.
        """
        if type(rate) is not int or rate < 1:
            raise self._item.error(f"a rate should be a positive integer; found {rate!r}.")
        return np.clip(_resampled(self._native, self.rate, rate, self._item), -1, 1)

    def __repr__(self) -> str:
        return f"AudioClip(rate={self.rate}, seconds={self.seconds:g})"


def _resampled(
    samples: NDArray[np.float32], found: int, wanted: int, item: Item
) -> NDArray[np.float32]:
    """What `librosa.resample` gives, without what it takes to import librosa."""
    if found == wanted:
        return samples
    soxr = item.library("soxr")
    length = ceil(len(samples) * (wanted / found))
    resampled = soxr.resample(samples, found, wanted, quality="soxr_hq")[:length]
    return np.pad(resampled, (0, length - len(resampled)))


def open_audio(source: object, *, index: int, limits: MediaLimits, rate: int | None) -> AudioClip:
    """See `phyla.media.open_audio`."""
    item = Item("audio", index, limits)
    array = as_array(source)
    if array is not None:
        return _from_array(array, rate, item)
    blob = find(source, item)
    clip = sound_of(blob, item)
    if clip is None:
        raise _no_sound(blob, item)
    return clip


def _no_sound(blob: Blob, item: Item) -> MediaError:
    looks = f"it looks like {blob.looks_like(item)}"
    with opened(blob, item) as container:
        tracks = container.streams.audio
        if not tracks:
            return item.error(f"it holds no sound; {looks}.", "Pass a file with a sound track.")
        if not any(packet.size for packet in container.demux(tracks)):
            return item.error(f"its sound is empty: it has no samples; {looks}.", "Leave it out.")
    return item.error(f"it holds no sound that decodes; {looks}.", "Check that it plays elsewhere.")


def sound_of(blob: Blob, item: Item) -> AudioClip | None:
    """The sound track of a file; None if there is none, or nothing of it decodes.

    Samples that are no numbers count as silence.

    Raises:
        MediaError: the file cannot be read, or the sound is too long.
    """
    with opened(blob, item) as container:
        if not container.streams.audio:
            return None
        segments = _segments(container, item)
    if not segments:
        return None
    rate = segments[0][0]
    parts = [_resampled(samples, found, rate, item) for found, samples in segments]
    return AudioClip(parts[0] if len(parts) == 1 else np.concatenate(parts), rate, item)


def _segments(container: InputContainer, item: Item) -> list[tuple[int, NDArray[np.float32]]]:
    """Stretches of one rate each; the rate may change within a file."""
    stream = container.streams.best("audio") or container.streams.audio[0]
    if stream.codec_context is None:
        raise item.error("there is no decoder for its sound.", "Convert it, to FLAC for example.")
    stretches: list[tuple[int, list[NDArray[np.float32]]]] = []
    seconds = Fraction(0)
    for frame in decoded(container, stream):
        frame = cast("AudioFrame", frame)
        rate = frame.sample_rate
        if not 0 < rate <= _HIGHEST_RATE:
            raise item.error(f"it claims to have {rate:,} samples per second.", "Convert it.")
        if not frame.samples:
            continue
        _check_length(seconds := seconds + Fraction(frame.samples, rate), item)
        if not stretches or stretches[-1][0] != rate:
            stretches.append((rate, []))
        stretches[-1][1].append(_mono(frame))
    return [(rate, np.concatenate(parts)) for rate, parts in stretches]


def _check_length(seconds: float | Fraction, item: Item) -> None:
    if seconds > item.limits.max_audio_seconds:
        raise item.error(
            f"the sound lasts longer than {item.limits.max_audio_seconds:g} seconds.",
            "Cut it, or raise MediaLimits.max_audio_seconds.",
        )


def _mono(frame: AudioFrame) -> NDArray[np.float32]:
    if frame.format.name.startswith("s64"):  # of which PyAV makes no array
        planes = [np.frombuffer(cast("Any", plane), np.int64) for plane in frame.planes]
        count = (
            frame.samples if frame.format.is_planar else frame.samples * frame.layout.nb_channels
        )
        array = np.stack([plane[:count] for plane in planes])
    else:
        array = frame.to_ndarray()
    # [channels, N], or [1, N * channels]
    if not frame.format.is_planar:
        array = array.reshape(frame.samples, -1).T
    mixed = _unit(array).mean(axis=0, dtype=np.float32)
    return np.nan_to_num(mixed, copy=False, nan=0.0, posinf=0.0, neginf=0.0)


def _unit(array: NDArray[Any]) -> NDArray[np.float32]:
    """Samples of any type on the scale from -1 to 1."""
    if array.dtype.kind == "f":
        return array.astype(np.float32)
    limits = np.iinfo(array.dtype)
    half = np.float32(2.0 ** (limits.bits - 1))
    if limits.min == 0:
        return array.astype(np.float32) / half - np.float32(1)
    return array.astype(np.float32) / half


def _from_array(array: NDArray[Any], rate: int | None, item: Item) -> AudioClip:
    if type(rate) is not int or not 0 < rate <= _HIGHEST_RATE:
        raise item.error(
            f"an array needs the rate of its samples; found rate={rate!r}.",
            "Pass rate=, in samples per second.",
        )
    if array.size == 0:
        raise item.error("the array holds no samples.", "Leave it out.")
    samples = _channels_first(array, item)
    _check_length(samples.shape[-1] / rate, item)
    if samples.dtype.kind == "f":
        peak = float(np.abs(samples).max())
        if not peak <= _LOUDEST:  # NaN fails, too
            raise item.error(
                f"samples of floats should lie from -1 to 1; found {peak:g}.",
                "Divide them by their scale (32768 for 16 bits), or pass integers.",
            )
    elif samples.dtype.kind not in "iu" or samples.dtype.itemsize > 4:
        raise item.error(
            f"an array of {samples.dtype} is no sound.",
            "Pass floats, or integers of up to 32 bits.",
        )
    return AudioClip(_unit(samples).mean(axis=0, dtype=np.float32), rate, item)


def _channels_first(array: NDArray[Any], item: Item) -> NDArray[Any]:
    if array.ndim == 1:
        return array[None]
    if array.ndim == 2:
        few = [length <= _MOST_CHANNELS for length in array.shape]
        if few == [True, False]:
            return array
        if few == [False, True]:
            return array.T
    raise item.error(
        f"in an array of shape {array.shape} samples and channels cannot be told apart.",
        "Pass one channel, [N].",
    )
