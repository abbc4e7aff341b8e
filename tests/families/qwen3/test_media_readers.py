"""What pictures and videos become: sizes, soft tokens, times, views; and settings that are wrong."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phyla.checkpoint import open_checkpoint
from phyla.errors import CheckpointError
from phyla.family import MediaReaders, MediaRequest, Plan, Soft
from phyla.registry import discover
from phyla.testing import read_tiny
from phyla.testing.footage import Footage
from phyla_families.qwen3.image_reader import ImageReader
from phyla_families.qwen3.preprocessing import ImageSettings, VideoSettings
from phyla_families.qwen3.video_reader import VideoReader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from phyla.checkpoint import Checkpoint
    from phyla.media import VideoClip

TABLE = read_tiny(Path(__file__).with_name("media.json"))
ANY = MediaRequest()


@dataclass
class Picture:
    size: tuple[int, int]

    def pixels(self) -> NDArray[np.uint8]:
        width, height = self.size
        return np.full((height, width, 3), (200, 100, 50), np.uint8)


def film(
    size: tuple[int, int], count: int, fps: float | None, times: Sequence[float] | None = None
) -> VideoClip:
    return Footage(count, size, fps, times).clip


IMAGES: Any = ImageReader(ImageSettings(), 32)
VIDEOS: Any = VideoReader(VideoSettings(), 32, 2)
CAPPED: Any = VideoReader(VideoSettings(cap_pixels_per_frame=True), 32, 2)


@pytest.mark.parametrize(
    ("size", "resized", "count"),
    [
        ((640, 480), (480, 640), 300),
        ((1920, 1080), (1088, 1920), 2040),
        ((100, 100), (256, 256), 64),
        ((5000, 4000), (3648, 4576), 16302),
        ((300, 31), (96, 800), 75),
    ],
)
def test_a_picture_takes_the_soft_tokens_of_the_published_models(
    size: tuple[int, int], resized: tuple[int, int], count: int
) -> None:
    plan = IMAGES.plan(Picture(size), ANY)
    rows, columns = resized[0] // 32, resized[1] // 32
    assert plan.pieces == (Soft("<|image_pad|>", count, (rows, columns)),)
    assert (plan.layout.height, plan.layout.width) == resized
    assert rows * columns == count


@given(st.integers(1, 3000), st.integers(1, 3000), st.integers(1, 2000))
def test_a_picture_takes_no_more_soft_tokens_than_are_allowed(
    width: int, height: int, most: int
) -> None:
    try:
        plan = IMAGES.plan(Picture((width, height)), MediaRequest(max_tokens=most))
    except ValueError as error:
        assert max(width, height) > min(most, 200) * min(width, height), error  # noqa: PT017
        return
    assert 1 <= plan.count <= most


def test_a_budget_that_is_not_reached_changes_nothing() -> None:
    picture = Picture((640, 480))
    assert IMAGES.plan(picture, MediaRequest(max_tokens=300)) == IMAGES.plan(picture, ANY)
    assert IMAGES.plan(picture, MediaRequest(max_tokens=299)).count == 14 * 19


@pytest.mark.parametrize(
    ("size", "request_", "words"),
    [
        ((2010, 10), ANY, "differ by more than 200 times"),
        ((3200, 32), MediaRequest(max_tokens=4), "at least 20 soft tokens, more than the 4"),
    ],
)
def test_a_picture_that_cannot_be_read_is_refused_in_plain_words(
    size: tuple[int, int], request_: MediaRequest, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        IMAGES.plan(Picture(size), request_)


def test_a_prepared_picture_is_one_frame_of_bytes_and_how_to_scale_them() -> None:
    picture = Picture((100, 60))
    plan = IMAGES.plan(picture, ANY)
    prepared = IMAGES.prepare(picture, plan)
    frames = prepared.arrays["frames"]
    assert frames.dtype == np.uint8
    assert frames.shape == (1, plan.layout.height, plan.layout.width, 3)
    scaled = frames[0, 0, 0] * prepared.arrays["scale"] + prepared.arrays["shift"]
    assert np.allclose(scaled, np.array([200, 100, 50]) / 127.5 - 1)
    ((caption, view),) = prepared.views()
    assert caption == f"{plan.layout.width} x {plan.layout.height} pixels, {plan.count} soft tokens"
    assert (view == frames[0]).all()


@pytest.mark.parametrize(
    ("clip", "frames", "grid", "starts"),
    [
        (film((640, 360), 240, 24.0), 20, (11, 20), ["0.3", "1.3", "2.4"]),
        (film((1280, 720), 75, 25.0), 6, (22, 40), ["0.3", "1.5", "2.7"]),
        (film((320, 240), 10, 30.0), 4, (8, 10), ["0.1", "0.2"]),
    ],
)
def test_a_video_takes_the_frames_and_soft_tokens_of_the_published_models(
    clip: VideoClip, frames: int, grid: tuple[int, int], starts: list[str]
) -> None:
    plan = VIDEOS.plan(clip, ANY)
    assert len(plan.layout.indices) == frames
    assert plan.layout.indices[0] == 0
    assert plan.layout.indices[-1] == clip.count - 1
    soft = Soft("<|video_pad|>", grid[0] * grid[1], grid)
    assert plan.runs == (soft,) * (frames // 2)
    for number, start in enumerate(starts):
        assert plan.pieces[3 * number : 3 * number + 3] == (
            f"<{start} seconds><|vision_start|>", soft, "<|vision_end|>",
        )  # fmt: skip


def test_a_frame_gets_its_share_of_the_budget_where_the_file_says_so() -> None:
    plan = CAPPED.plan(film((1280, 720), 75, 25.0), ANY)
    assert plan.runs == (Soft("<|video_pad|>", 720, (20, 36)),) * 3


@pytest.mark.parametrize(
    ("request_", "frames"),
    [
        (MediaRequest(fps=1.0), 10),
        (MediaRequest(fps=100.0), 240),
        (MediaRequest(max_frames=7), 7),
        (MediaRequest(max_frames=1), 1),
        (MediaRequest(fps=0.01), 4),
    ],
)
def test_a_request_says_how_many_frames_are_looked_at(request_: MediaRequest, frames: int) -> None:
    assert len(VIDEOS.plan(film((64, 64), 240, 24.0), request_).layout.indices) == frames


def test_the_last_frame_fills_a_pair_alone() -> None:
    footage = Footage(240, (64, 64), 24.0)
    plan = VIDEOS.plan(footage.clip, MediaRequest(max_frames=5))
    assert len(plan.runs) == 3
    assert plan.pieces[-3] == "<10.0 seconds><|vision_start|>"  # of frame 239 alone
    prepared = VIDEOS.prepare(footage.clip, plan)
    assert footage.decoded == [0, 60, 120, 179, 239]
    assert prepared.arrays["frames"].shape[0] == 5
    assert [caption for caption, _ in prepared.views()] == [
        "0.00 s", "2.50 s", "5.00 s", "7.46 s", "9.96 s",
    ]  # fmt: skip


def test_a_video_of_one_frame_is_read_like_two_equal_ones() -> None:
    plan = VIDEOS.plan(film((640, 480), 1, 30.0), ANY)
    assert plan.pieces[0] == "<0.0 seconds><|vision_start|>"
    assert len(plan.runs) == 1


@pytest.mark.parametrize("most", [3, 17, 100])
def test_a_video_takes_no_more_soft_tokens_than_are_allowed(most: int) -> None:
    plan = VIDEOS.plan(film((1280, 720), 75, 25.0), MediaRequest(max_tokens=most))
    assert len(plan.runs) == 3
    assert plan.count <= most


def test_fewer_soft_tokens_than_pairs_of_frames_are_refused() -> None:
    with pytest.raises(ValueError, match=r"6 of its frames take at least 3 .* 'max_frames'"):
        VIDEOS.plan(film((1280, 720), 75, 25.0), MediaRequest(max_tokens=2))


def test_a_video_whose_rate_changes_shows_the_times_of_its_frames() -> None:
    times = [*np.arange(8) / 2, *(3.5 + np.arange(1, 9) * 2)]
    plan = VIDEOS.plan(film((64, 64), 16, 0.8, times), MediaRequest(fps=0.4))
    assert plan.layout.seconds == tuple(times[index] for index in plan.layout.indices)
    late = [time + 5 for time in times]
    assert VIDEOS.plan(film((64, 64), 16, 0.8, late), MediaRequest(fps=0.4)) == plan


def test_frames_without_a_rate_go_by_their_times() -> None:
    timed = film((64, 64), 11, None, (np.arange(11) / 25).tolist())
    assert VIDEOS.plan(timed, ANY) == VIDEOS.plan(film((64, 64), 11, 25.0), ANY)
    with pytest.raises(ValueError, match="'source_fps'"):
        VIDEOS.plan(film((64, 64), 3, None, [0.0, 0.0, 0.0]), ANY)
    with pytest.raises(ValueError, match="no frame"):
        VIDEOS.plan(film((64, 64), 0, 25.0), ANY)


def test_a_single_picture_is_a_video_of_one_second() -> None:
    plan = VIDEOS.plan(film((64, 64), 1, None), ANY)
    assert plan.layout.seconds == (0.0,)
    assert len(plan.runs) == 1


@pytest.mark.parametrize("fps", [1e308, float("inf"), 5e-324])
def test_no_rate_is_too_high_or_too_low(fps: float) -> None:
    frames = len(VIDEOS.plan(film((64, 64), 9, 25.0), MediaRequest(fps=fps)).layout.indices)
    assert frames == (9 if fps > 1 else 4)


def test_a_video_is_decoded_once_and_its_frames_are_let_go() -> None:
    footage = Footage(100, (200, 120), 25.0)
    plan = VIDEOS.plan(footage.clip, MediaRequest(fps=24.0))
    VIDEOS.prepare(footage.clip, plan)
    assert len(footage.decoded) == 96
    assert footage.passes == 1
    assert footage.most_held <= 2


def test_a_conversation_without_a_template_marks_them_alike() -> None:
    for reader in (IMAGES, VIDEOS):
        assert (reader.before, reader.after) == ("<|vision_start|>", "<|vision_end|>")


@pytest.fixture(params=list(TABLE))
def checkpoint(request: pytest.FixtureRequest, tmp_path: Path) -> Checkpoint:
    return open_checkpoint(TABLE[request.param].write(tmp_path), offline=True)


def readers(checkpoint: Checkpoint, **files: object) -> MediaReaders:
    content: Any = {f"{name}.json": keys for name, keys in files.items()}
    checkpoint = replace(checkpoint, preprocessing=content)
    family = discover().family_for(checkpoint)
    return family.media(family.config.read(checkpoint.config).settle(checkpoint), checkpoint)


def planned(found: MediaReaders, size: tuple[int, int] = (64, 48)) -> tuple[Plan, Plan]:
    """A picture's plan, and a video's."""
    image, video = found.image, found.video
    assert image is not None
    assert video is not None
    picture: Any = Picture(size)
    clip: Any = film(size, 8, 4.0)
    return image.plan(picture, ANY), video.plan(clip, ANY)


def test_without_files_the_published_budgets_hold(checkpoint: Checkpoint) -> None:
    found = readers(checkpoint)
    assert found.audio is None
    image, video = planned(found)
    assert image.count == 28 * 37  # blocks of 8 x 8: at least 65536 pixels
    assert video.count == 2 * 6 * 8


def test_budgets_come_from_the_files(checkpoint: Checkpoint) -> None:
    size = {"shortest_edge": 64, "longest_edge": 1024}
    image, video = planned(
        readers(
            checkpoint, preprocessor_config={"size": size}, video_preprocessor_config={"fps": 8.0}
        )
    )
    assert image.count == 12
    assert len(video.runs) == 4
    older, _ = planned(
        readers(checkpoint, preprocessor_config={"min_pixels": 64, "max_pixels": 1024})
    )
    assert older == image


def test_the_file_of_both_goes_first(checkpoint: Checkpoint) -> None:
    size = {"shortest_edge": 64, "longest_edge": 512}
    image, video = planned(
        readers(
            checkpoint,
            preprocessor_config={"size": 5},
            processor_config={"image_processor": {"size": size}, "video_processor": {"fps": 1}},
        )
    )
    assert image.count <= 8
    assert len(video.runs) == 2


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("preprocessor_config", {"size": 224}, "'size' is one too"),
        ("preprocessor_config", {"size": {"shortest_edge": 0}}, "shortest_edge .* greater than 0"),
        ("preprocessor_config", {"size": {"longest_edge": 9}}, "at most its 'longest_edge'"),
        ("preprocessor_config", {"patch_size": 0}, "patch_size .* greater than 0"),
        ("preprocessor_config", {"patch_size": 14}, "patch_size should be 4, as config"),
        ("preprocessor_config", {"merge_size": "two"}, "merge_size .* an integer"),
        ("preprocessor_config", {"image_mean": 0.5}, "image_mean .* a list"),
        ("preprocessor_config", {"image_std": [0, 1, 1]}, "image_std.* greater than 0"),
        ("preprocessor_config", {"resample": 9}, "resample .* less than or equal to 5"),
        ("video_preprocessor_config", {"fps": -1}, "fps .* greater than 0"),
        ("video_preprocessor_config", {"temporal_patch_size": 4}, "should be 2"),
        ("processor_config", {"image_processor": {"patch_size": 0}}, "image_processor.patch_size"),
        ("processor_config", {"video_processor": []}, "video_processor"),
    ],
)
def test_settings_that_make_no_sense_are_named(
    file: str, content: dict[str, Any], words: str, tmp_path: Path
) -> None:
    checkpoint = open_checkpoint(TABLE["vl"].write(tmp_path), offline=True)
    with pytest.raises(CheckpointError, match=words) as caught:
        readers(checkpoint, **{file: content})
    assert caught.value.file == f"{file}.json"
