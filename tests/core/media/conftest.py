"""Sounds and videos that the tests write for themselves."""

from __future__ import annotations

import io
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import av  # noqa: TID253  (the tests are about it)
import numpy as np
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def _frame(place: int, size: tuple[int, int]) -> np.ndarray:
    """Top half as bright as its place says, in red; the left quarter white, the rest black."""
    width, height = size
    picture = np.zeros((height, width, 3), np.uint8)
    picture[: height // 2, :, 0] = min(place * 10, 255)
    picture[:, : width // 4] = 255
    return picture


def _film(
    container: str = "mp4",
    codec: str = "libx264",
    *,
    pixels: str = "yuv420p",
    size: tuple[int, int] = (64, 48),
    times: Sequence[int] = range(20),
    options: dict[str, str] | None = None,
    matrix: tuple[int, int, int, int] | None = None,
    sound: bool = False,
    container_options: dict[str, str] | None = None,
) -> bytes:
    """Encode one frame for each of `times`, in tenths of a second."""
    file = io.BytesIO()
    with av.open(file, "w", format=container, options=container_options or {}) as output:
        stream: Any = output.add_stream(codec, rate=10, options=options or {})
        stream.width, stream.height = size
        stream.pix_fmt = pixels
        if matrix is not None:
            a, b, c, d = (value << 16 for value in matrix)
            stream.set_display_matrix([a, b, 0, c, d, 0, 0, 0, 1 << 30])
        track: Any = output.add_stream("aac", rate=8000, layout="mono") if sound else None
        for place, time in enumerate(times):
            frame = av.VideoFrame.from_ndarray(_frame(place, size), format="rgb24")
            frame.pts, frame.time_base = time, Fraction(1, 10)
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
        if track is not None:
            tone = np.sin(np.arange(8000 * 2) * 0.3, dtype=np.float32)[None] * 0.5
            samples = av.AudioFrame.from_ndarray(tone, format="fltp", layout="mono")
            samples.sample_rate, samples.pts = 8000, 0
            output.mux(track.encode(samples))
            output.mux(track.encode(None))
    return file.getvalue()


def _sound(
    samples: np.ndarray,
    rate: int,
    container: str = "wav",
    codec: str = "pcm_s16le",
    layout: str = "mono",
    kind: str = "flt",
) -> bytes:
    """Encode samples [channels, N] from -1 to 1."""
    file = io.BytesIO()
    with av.open(file, "w", format=container) as output:
        track: Any = output.add_stream(codec, rate=rate, layout=layout)
        frame: Any = av.AudioFrame.from_ndarray(
            np.ascontiguousarray(samples.T.astype(np.float32)).reshape(1, -1),
            format=kind,
            layout=layout,
        )
        frame.sample_rate, frame.pts = rate, 0
        resampler = av.AudioResampler(track.format, layout, rate, frame_size=track.frame_size or 0)
        for piece in [*resampler.resample(frame), *resampler.resample(None)]:
            output.mux(track.encode(piece))
        output.mux(track.encode(None))
    return file.getvalue()


@pytest.fixture(scope="session")
def film() -> Callable[..., bytes]:
    """Writes a video: see `_film`."""
    return _film


@pytest.fixture(scope="session")
def sound() -> Callable[..., bytes]:
    """Writes a sound: see `_sound`."""
    return _sound
