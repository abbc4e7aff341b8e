"""The frames of a video file, decoded by PyAV: once to learn which decode, then on request.

Headers lie about durations and numbers of frames, so none of that is read from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from phyla.media.containers import decoded, opened

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from av.container import InputContainer
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream
    from numpy.typing import NDArray

    from phyla.media.audio import AudioClip
    from phyla.media.item import Item
    from phyla.media.sources import Blob


@dataclass(frozen=True)
class Turn:
    """How a picture is to be turned: transposed first, then flipped."""

    transpose: bool = False
    flip_x: bool = False
    flip_y: bool = False

    @classmethod
    def from_matrix(cls, matrix: bytes) -> Turn:
        """Of a display matrix: nine 32-bit integers, `[a b u; c d v; x y w]` (ISO 14496-12).

        A point goes to x' = a x + c y, y' = b x + d y. An odd angle counts as the nearest of the
        quarter turns.
        """
        a, b, _, c, d = (int(value) for value in np.frombuffer(matrix, np.int32)[:5])
        if abs(a) + abs(d) >= abs(b) + abs(c):
            return cls(transpose=False, flip_x=a < 0, flip_y=d < 0)
        return cls(transpose=True, flip_x=c < 0, flip_y=b < 0)

    @classmethod
    def from_angle(cls, degrees: float) -> Turn:
        """Of a rotation counterclockwise."""
        angle = np.deg2rad(-degrees)
        sine, cosine = (round(float(value) * 65536) for value in (np.sin(angle), np.cos(angle)))
        matrix = [cosine, sine, 0, -sine, cosine, 0, 0, 0, 1 << 30]
        return cls.from_matrix(np.array(matrix, np.int32).tobytes())

    def apply(self, picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """[H, W, 3] the right way up."""
        if self.transpose:
            picture = picture.transpose(1, 0, 2)
        if self.flip_x:
            picture = picture[:, ::-1]
        return picture[::-1] if self.flip_y else picture


@dataclass(frozen=True)
class Film:
    """A video file whose frames were counted; see `phyla.media.video.Pictures`."""

    blob: Blob
    item: Item
    coded: tuple[int, int]
    turn: Turn
    fps: float | None
    timestamps: NDArray[np.float64]
    seconds: float

    @property
    def size(self) -> tuple[int, int]:
        """(width, height), the right way up."""
        width, height = self.coded
        return (height, width) if self.turn.transpose else (width, height)

    def read(self, indices: Sequence[int]) -> Iterator[NDArray[np.uint8]]:
        """Decode from the start up to the last frame that is asked for.

        Raises:
            MediaError: the file changed since it was opened, or is gone.
        """
        if not indices:
            return
        wanted = iter(indices)
        upcoming = next(wanted)
        with opened(self.blob, self.item) as container:
            for place, frame in enumerate(_frames(container, self.item)):
                if place < upcoming:
                    continue
                yield self.turn.apply(_rgb(frame, self.coded))
                following = next(wanted, None)
                if following is None:
                    return
                upcoming = following
        raise self.item.error("the file changed while it was in use.", "Open it again.")

    def sound(self) -> AudioClip | None:
        """The file's sound track."""
        from phyla.media.audio import sound_of

        return sound_of(self.blob, self.item)


def open_film(blob: Blob, item: Item) -> Film:
    """Decode a video once, keeping nothing but the times of its frames.

    Raises:
        MediaError: it holds no frame that decodes, or is too large or too long.
    """
    first: VideoFrame | None = None
    turn = Turn()
    clock = _Clock()
    with opened(blob, item) as container:
        average = _stream(container, item).average_rate
        fps = float(average) if average else None
        for frame in _frames(container, item):
            if first is None:
                first = frame
                _rgb(frame, (frame.width, frame.height))  # that it can be is part of the promise
                turn = _turn(frame)
            clock.tick(frame)
            _check_length(clock, item)
    if first is None:
        _check_claim(blob, item)
        raise item.error(
            f"none of its frames decodes; it looks like {blob.looks_like(item)}.",
            f"If a frame has more than {item.limits.max_pixels:,} pixels, scale it down, or raise "
            "MediaLimits.max_pixels; otherwise check that it plays elsewhere.",
        )
    timestamps = np.array(clock.times)
    last = clock.last_duration or clock.step or (1 / fps if fps else 0.0)
    return Film(
        blob=blob,
        item=item,
        coded=(first.width, first.height),
        turn=turn,
        fps=fps,
        timestamps=timestamps,
        seconds=float(timestamps[-1]) + last,
    )


def _check_claim(blob: Blob, item: Item) -> None:
    """Refuse a video by the size that its container names.

    A decoder that has refused a size does not tell which.
    """
    with opened(blob, item, headers_only=True) as container:
        for stream in container.streams.video:
            context = stream.codec_context
            if context is not None and context.width and context.height:
                item.check_pixels(context.width, context.height)


class _Clock:
    """The times of frames, from the first one on. They never go back, whatever the file says."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.last_duration = 0.0
        self._start: float | None = None

    @property
    def step(self) -> float:
        """The mean time between frames so far; zero while there is none."""
        return self.times[-1] / (len(self.times) - 1) if len(self.times) > 1 else 0.0

    def tick(self, frame: VideoFrame) -> None:
        base = frame.time_base
        stamp = frame.pts if frame.pts is not None else frame.dts
        time = None if stamp is None or base is None else float(stamp * base)
        if self._start is None and time is not None:
            # Frames without a time before the first one that has one were put at their place.
            self._start = time - (self._next() if self.times else 0.0)
        if time is not None and self._start is not None:
            time -= self._start
        if time is None or (self.times and time < self.times[-1]):
            time = self._next()
        self.times.append(time)
        self.last_duration = float(frame.duration * base) if frame.duration and base else 0.0

    def _next(self) -> float:
        return self.times[-1] + (self.last_duration or self.step) if self.times else 0.0


def _check_length(clock: _Clock, item: Item) -> None:
    if clock.times[-1] > item.limits.max_video_seconds:
        raise item.error(
            f"the video lasts longer than {item.limits.max_video_seconds:g} seconds.",
            "Cut it, or raise MediaLimits.max_video_seconds.",
        )
    if len(clock.times) > item.limits.max_frames:
        raise item.error(
            f"the video has more than {item.limits.max_frames:,} frames.",
            "Cut it, or raise MediaLimits.max_frames.",
        )


def _stream(container: InputContainer, item: Item) -> VideoStream:
    import av.stream

    attached = av.stream.Disposition.attached_pic
    streams = [s for s in container.streams.video if not s.disposition & attached]
    if not streams:
        what = "a cover picture and no video" if container.streams.video else "no video"
        raise item.error(f"it holds {what}.", "Pass it as audio or as an image.")
    best = container.streams.best("video")
    stream = next((s for s in streams if best is not None and s.index == best.index), streams[0])
    if stream.codec_context is None:
        raise item.error("there is no decoder for its video.", "Convert it, to H.264 for example.")
    if stream.codec_context.width and stream.codec_context.height:
        item.check_pixels(stream.codec_context.width, stream.codec_context.height)
    # A stream may claim another size than its container, and would be given memory for it.
    stream.codec_context.options = {"max_pixels": str(item.limits.max_pixels)}
    return stream


def _frames(container: InputContainer, item: Item) -> Iterator[VideoFrame]:
    for frame in decoded(container, _stream(container, item)):
        frame = cast("VideoFrame", frame)
        item.check_pixels(frame.width, frame.height)  # it may change midway
        yield frame


def _turn(frame: VideoFrame) -> Turn:
    try:
        matrix = frame.side_data.get("DISPLAYMATRIX")
    except ValueError:  # of a kind that is newer than PyAV
        return Turn.from_angle(frame.rotation)
    return Turn() if matrix is None else Turn.from_matrix(bytes(matrix))


def _rgb(frame: VideoFrame, size: tuple[int, int]) -> NDArray[np.uint8]:
    """[H, W, 3] of a size; what is transparent is laid on white."""
    from phyla.media.pixels import blended

    width, height = size
    alpha = any(part.is_alpha for part in frame.format.components) or frame.format.name == "pal8"
    kind = "rgba" if alpha else "rgb24"
    picture = frame.to_ndarray(format=kind, width=width, height=height)
    return blended(np.asarray(picture, np.uint8))
