"""What an image, a video or audio takes in a prompt is known from its outside alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phyla.family import MediaRequest, Plan, Soft
from phyla.testing.footage import Footage
from phyla_families.gemma4.audio_reader import MelReader, SampleReader
from phyla_families.gemma4.image_reader import ImageReader, Look
from phyla_families.gemma4.mel import MelFrames
from phyla_families.gemma4.settings import MelSettings
from phyla_families.gemma4.sizes import BUDGETS, budget_for, soft_grid
from phyla_families.gemma4.video_reader import Sampling, VideoReader

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from phyla.media import VideoClip

LOOK = Look(side=48, longest=3413, budget=280, resample=3)
FRAME_LOOK = Look(side=48, longest=3413, budget=70, resample=3)
RATE = 16000


class Picture:
    """An image whose content nobody may ask for before it is prepared."""

    def __init__(self, width: int, height: int, *, shown: bool = False) -> None:
        self.size = (width, height)
        self.shown = shown

    def pixels(self) -> NDArray[np.uint8]:
        assert self.shown
        width, height = self.size
        return (np.arange(3 * width * height) % 251).astype(np.uint8).reshape(height, width, 3)


def film(count: int, size: tuple[int, int], fps: float | None) -> VideoClip:
    return Footage(count, size, fps).clip


class Clip:
    """Audio: a tone, or one whose length a resampler rounds in its own way."""

    def __init__(self, count: float, off: int = 0) -> None:
        self.seconds = count / RATE
        self._count = math.ceil(count) + off

    def samples(self, rate: int) -> NDArray[np.float32]:
        assert rate == RATE
        return (0.5 * np.sin(np.arange(self._count) / 9)).astype(np.float32)


def plan(reader: Any, item: Any, **request: Any) -> Plan:
    return reader.plan(item, MediaRequest(**request))


@pytest.mark.parametrize(
    ("height", "width", "grids"),
    [
        (480, 640, ["7x9", "10x13", "14x19", "20x27", "28x38"]),
        (1080, 1920, ["6x11", "8x15", "12x22", "17x31", "25x44"]),
        (1024, 1024, ["8x8", "11x11", "16x16", "23x23", "33x33"]),
        (1, 1, ["8x8", "11x11", "16x16", "23x23", "33x33"]),
        (3000, 2000, ["10x6", "14x9", "20x13", "28x19", "40x27"]),
        (20, 3000, ["1x70", "1x140", "1x204", "1x289", "2x409"]),
    ],
)
def test_an_image_fills_its_budget(height: int, width: int, grids: list[str]) -> None:
    for budget, grid in zip(BUDGETS, grids, strict=True):
        rows, columns = map(int, grid.split("x"))
        image = plan(ImageReader(LOOK), Picture(width, height), max_tokens=budget)
        soft = Soft("<|image|>", rows * columns, (rows, columns))
        assert image.pieces == ("<|image>", soft, "<image|>")


@pytest.mark.parametrize(("width", "height"), [(5000, 10), (40000, 1), (10, 5000)])
def test_a_thin_image_is_as_long_as_the_budget(width: int, height: int) -> None:
    assert plan(ImageReader(LOOK), Picture(width, height)).count == 280


@given(st.integers(1, 60000), st.integers(1, 60000), st.sampled_from(BUDGETS))
def test_no_image_takes_more_than_its_budget_or_nothing(
    width: int, height: int, budget: int
) -> None:
    rows, columns = soft_grid(width, height, budget=budget, side=48)
    assert 1 <= rows * columns <= budget
    assert (columns, rows) == soft_grid(height, width, budget=budget, side=48)


@pytest.mark.parametrize(
    ("allowed", "budget"), [(None, 280), (70, 70), (139, 70), (1000, 560), (5000, 1120)]
)
def test_the_largest_budget_that_is_allowed_is_taken(allowed: int | None, budget: int) -> None:
    assert budget_for(allowed, 280) == budget


@pytest.mark.parametrize(
    ("size", "request_", "words"),
    [
        ((640, 480), {"max_tokens": 62}, "at least 63 tokens, and 62 .* raise 'max_tokens'"),
        ((0, 480), {}, "no pixels"),
        ((480, 0), {}, "no pixels"),
        ((3000, 20), {}, "sides differ"),
    ],
)
def test_an_image_that_cannot_be_read_is_told(
    size: tuple[int, int], request_: dict[str, Any], words: str
) -> None:
    short = Look(side=48, longest=100, budget=280, resample=3)
    with pytest.raises(ValueError, match=words):
        plan(ImageReader(short), Picture(*size), **request_)


def test_an_image_that_leaves_some_of_the_smallest_budget_unused_may_take_just_that() -> None:
    assert plan(ImageReader(LOOK), Picture(640, 480), max_tokens=63).count == 63


@pytest.mark.parametrize(("width", "height"), [(97, 61), (912, 672)])
def test_the_tower_is_given_what_people_are_shown(width: int, height: int) -> None:
    picture: Any = Picture(width, height, shown=True)
    reader = ImageReader(LOOK)
    image = plan(reader, picture)
    prepared, again = (reader.prepare(picture, image) for _ in range(2))
    soft = image.runs[0]
    assert soft.grid is not None
    assert prepared.arrays["pixels"].shape == (1, 48 * soft.grid[0], 48 * soft.grid[1], 3)
    assert prepared.arrays["pixels"].dtype == np.uint8
    np.testing.assert_array_equal(prepared.arrays["pixels"], again.arrays["pixels"])
    ((caption, view),) = prepared.views()
    np.testing.assert_array_equal(view, prepared.arrays["pixels"][0])
    assert f"{image.count} tokens" in caption
    if (width, height) == (912, 672):  # of the right size already
        np.testing.assert_array_equal(view, picture.pixels())


def video_reader(frames: int | None = 32, fps: float | None = None) -> VideoReader:
    return VideoReader(FRAME_LOOK, Sampling(frames=frames, fps=fps))


def text_of(video: Plan) -> str:
    """The pieces, a run as the number of its tokens."""
    return "".join(
        f"[{piece.count}]" if isinstance(piece, Soft) else piece for piece in video.pieces
    )


def test_each_frame_of_a_video_stands_behind_its_time() -> None:
    video = plan(video_reader(), film(3, (640, 360), 0.015))
    assert text_of(video) == (
        "00:00 <|image>[66]<image|> 01:06 <|image>[66]<image|> 02:13 <|image>[66]<image|>"
    )
    assert {soft.token for soft in video.runs} == {"<|video|>"}
    assert video.runs[0].grid == (6, 11)


def test_frames_are_spread_evenly_over_a_video() -> None:
    video = plan(video_reader(), film(100, (480, 480), 10.0))
    assert video.count == 32 * 64
    stamps = text_of(video).replace("<image|>", "").split("<|image>[64]")[:-1]
    assert [stamp.strip() for stamp in stamps[:5]] == ["00:00"] * 4 + ["00:01"]
    assert stamps[-1].strip() == "00:09"
    assert plan(video_reader(), film(5000, (1920, 1080), 30.0)).count == 2112


@pytest.mark.parametrize(
    ("clip", "request_", "frames"),
    [
        (film(20, (480, 480), 10.0), {}, 20),
        (film(100, (480, 480), 10.0), {"fps": 1.0}, 10),
        (film(100, (480, 480), 10.0), {"fps": 0.01}, 1),
        (film(100, (480, 480), 10.0), {"fps": 50.0}, 100),
        (film(48, (480, 480), None), {"fps": 2.0}, 4),
        (film(100, (480, 480), 10.0), {"fps": 5.0, "max_frames": 7}, 7),
        (film(100, (480, 480), 10.0), {"max_frames": 64}, 64),
        (film(100, (480, 480), 10.0), {"max_tokens": 64 * 5 + 1}, 5),
    ],
)
def test_a_request_says_how_many_frames_are_looked_at(
    clip: VideoClip, request_: dict[str, Any], frames: int
) -> None:
    assert len(plan(video_reader(), clip, **request_).runs) == frames


def test_a_checkpoint_says_how_many_frames_are_looked_at() -> None:
    clip = film(100, (480, 480), 10.0)
    assert len(plan(video_reader(4), clip).runs) == 4
    assert len(plan(video_reader(None), clip).runs) == 100
    assert len(plan(video_reader(32, 2.0), clip).runs) == 20
    assert len(plan(video_reader(32, 2.0), clip, max_frames=3).runs) == 3


@pytest.mark.parametrize(
    ("clip", "words"),
    [
        (film(0, (480, 480), 1.0), "no frame"),
        (film(9, (480, 480), 1.0), "64 .* raise 'max_tokens'"),
    ],
)
def test_a_video_that_cannot_be_read_is_told(clip: VideoClip, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        plan(video_reader(), clip, max_tokens=63)


def test_the_frames_of_a_video_are_those_that_were_planned() -> None:
    footage = Footage(100, (64, 48), 10.0)
    reader = video_reader(20)
    video = plan(reader, footage.clip)
    prepared = reader.prepare(footage.clip, video)
    assert prepared.arrays["pixels"].shape == (20, 336, 432, 3)
    shades = [int(frame[0, 0, 0]) for frame in prepared.arrays["pixels"]]
    assert shades == list(range(0, 100, 5))
    assert [caption for caption, _ in prepared.views()][:3] == [
        "00:00, frame 0", "00:00, frame 5", "00:01, frame 10",
    ]  # fmt: skip


def test_a_video_is_decoded_once_and_its_frames_are_let_go() -> None:
    footage = Footage(100, (64, 48), 10.0)
    reader = video_reader(96)
    reader.prepare(footage.clip, plan(reader, footage.clip))
    assert len(footage.decoded) == 96
    assert footage.passes == 1
    assert footage.most_held <= 2


@pytest.mark.parametrize("fps", [1e308, float("inf"), 5e-324])
def test_no_rate_is_too_high_or_too_low(fps: float) -> None:
    runs = plan(video_reader(), film(9, (480, 480), 10.0), fps=fps).runs
    assert len(runs) == (9 if fps > 1 else 1)


@pytest.mark.parametrize(
    ("samples", "frames", "count"),
    [
        (161, 1, 1),
        (8000, 49, 13),
        (16000, 99, 25),
        (200000, 1249, 313),
        (479840, 2998, 750),
        (560000, 2999, 750),
    ],
)
def test_audio_takes_a_token_for_four_frames(samples: int, frames: int, count: int) -> None:
    reader = MelReader(MelSettings())
    heard = plan(reader, Clip(samples))
    assert heard.pieces == ("<|audio>", Soft("<|audio|>", count), "<audio|>")
    assert MelFrames(MelSettings()).count(min(samples, 480000)) == frames


@pytest.mark.parametrize(
    ("samples", "count"), [(1, 1), (8000, 13), (16000, 25), (200000, 313), (560000, 750)]
)
def test_audio_without_a_tower_takes_a_token_for_so_many_samples(samples: int, count: int) -> None:
    assert plan(SampleReader(RATE, 640), Clip(samples)).count == count


READERS = pytest.mark.parametrize("reader", [MelReader(MelSettings()), SampleReader(RATE, 640)])


@READERS
@pytest.mark.parametrize("off", [-1, 0, 2])
@pytest.mark.parametrize("count", [999.25, 16000, 16001, 17000])
def test_audio_is_prepared_as_it_was_planned(reader: Any, count: float, off: int) -> None:
    clip = Clip(count, off)
    heard = plan(reader, clip)
    prepared = reader.prepare(clip, heard)
    frames = prepared.arrays["frames"]
    assert frames.dtype == np.float32
    assert heard.count == (
        len(frames) if isinstance(reader, SampleReader) else math.ceil(len(frames) / 4)
    )
    ((caption, view),) = prepared.views()
    assert view.shape == (128, (math.ceil(count) - 1) // 160, 3)
    assert view.dtype == np.uint8
    assert f"{heard.count} tokens" in caption


@READERS
@given(allowed=st.integers(1, 800), count=st.integers(161, 600000))
def test_audio_is_cut_to_what_is_allowed_and_no_shorter(
    reader: Any, allowed: int, count: int
) -> None:
    free, bound = plan(reader, Clip(count)), plan(reader, Clip(count), max_tokens=allowed)
    assert bound.count == min(free.count, allowed)


@READERS
def test_silence_of_no_length_is_told(reader: Any) -> None:
    with pytest.raises(ValueError, match="too short"):
        plan(reader, Clip(0))
    with pytest.raises(ValueError, match="at least one token"):
        plan(reader, Clip(16000), max_tokens=0)


def test_ten_milliseconds_are_too_short_for_the_tower() -> None:
    with pytest.raises(ValueError, match="too short"):
        plan(MelReader(MelSettings()), Clip(160))


def test_a_tone_is_bright_where_its_pitch_is() -> None:
    rate, hertz = 16000, 1000.0
    wave = np.sin(2 * np.pi * hertz * np.arange(rate) / rate).astype(np.float32)
    mel = MelFrames(MelSettings())(wave)
    brightest = int(mel.mean(axis=0).argmax())
    # The bin whose middle is nearest to the pitch, of 128 evenly spaced in mels up to 8 kHz.
    middles = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + 8000 / 700), 130) / 2595) - 1)
    assert abs(brightest - int(np.abs(middles[1:-1] - hertz).argmin())) <= 1
    quiet = MelFrames(MelSettings())(np.zeros(1000, np.float32))
    np.testing.assert_allclose(quiet, np.log(1e-3), rtol=1e-6)
