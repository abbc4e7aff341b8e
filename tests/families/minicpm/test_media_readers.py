"""What MiniCPM-V makes of an image or a video, and of its preprocessor files."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phyla.checkpoint import open_checkpoint
from phyla.errors import CheckpointError
from phyla.family import MediaReader, MediaReaders, MediaRequest, Plan, Soft
from phyla.registry import discover
from phyla.testing import read_tiny
from phyla.testing.footage import Footage
from phyla_families.minicpm.pixels import canvas, canvas_grid
from phyla_families.minicpm.sampling import clock, every, sampled
from phyla_families.minicpm.video_reader import pictures

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from phyla.checkpoint import Checkpoint
    from phyla.media import VideoClip

TABLE = read_tiny(Path(__file__).with_name("tiny.json"))
NOTHING = MediaRequest()


@dataclass(frozen=True)
class Picture:
    """Stands in for `phyla.media.ImageFile`; `opened` counts how often it was decoded."""

    size: tuple[int, int]
    opened: list[int] = dataclasses.field(default_factory=list[int])

    def pixels(self) -> NDArray[np.uint8]:
        self.opened.append(1)
        width, height = self.size
        return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


def film(count: int, fps: float | None, size: tuple[int, int] = (320, 180)) -> VideoClip:
    return Footage(count, size, fps).clip


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Checkpoint]:
    folder = tmp_path_factory.mktemp("tiny")
    return {
        name: open_checkpoint(TABLE[name].write(folder / name), offline=True)
        for name in ("4.6", "4.7, untied")
    }


@pytest.fixture
def readers(checkpoints: dict[str, Checkpoint]) -> Any:
    def make(
        files: Mapping[str, Mapping[str, Any]] | None = None, name: str = "4.6"
    ) -> MediaReaders:
        checkpoint = dataclasses.replace(checkpoints[name], preprocessing=files or {})
        family = discover().family_for(checkpoint)
        return family.media(family.config.read(checkpoint.config).settle(checkpoint), checkpoint)

    return make


def plan(reader: MediaReader[Any] | None, item: Any, request: MediaRequest = NOTHING) -> Plan:
    assert reader is not None
    return reader.plan(item, request)


# Images.


def test_an_image_is_planned_by_its_size_and_numbered(readers: Any) -> None:
    picture = Picture((640, 480))
    pieces = plan(readers().image, picture, MediaRequest(number=2)).pieces
    assert pieces == (
        "<image_id>2</image_id><image>", Soft("<|image_pad|>", 63, (7, 9)), "</image><slice>",
        Soft("<|image_pad|>", 70, (10, 7)), "</slice><slice>", Soft("<|image_pad|>", 70, (10, 7)),
        "</slice>",
    )  # fmt: skip
    assert not picture.opened


def test_an_image_is_prepared_as_patches_and_shown_as_the_model_sees_it(readers: Any) -> None:
    picture, reader = Picture((640, 480)), readers().image
    layout = plan(reader, picture)
    prepared = reader.prepare(picture, layout)
    arrays = prepared.arrays
    assert arrays["grids"].tolist() == [[28, 36], [40, 28], [40, 28]]
    assert arrays["patches"].shape == (28 * 36 + 2 * 40 * 28, 14, 14, 3)
    assert arrays["patches"].dtype == np.uint8
    assert arrays["patches"].shape[0] == 16 * layout.count
    assert arrays["scale"] == pytest.approx([2 / 255] * 3)
    assert arrays["shift"] == pytest.approx([-1] * 3)
    captions, pictures = zip(*prepared.views(), strict=True)
    assert captions == (
        "image, overview", "image, slice 1,1 of 1x2", "image, slice 1,2 of 1x2",
    )  # fmt: skip
    assert [view.shape for view in pictures] == [(392, 504, 3), (560, 392, 3), (560, 392, 3)]
    # The second patch of the second row of the first slice.
    assert (pictures[1][14:28, 14:28] == arrays["patches"][28 * 36 + 28 + 1]).all()
    again = reader.prepare(picture, layout).arrays
    assert all((again[name] == arrays[name]).all() for name in arrays)


@pytest.mark.parametrize(
    ("most", "count"), [(1000, 578), (577, 514), (300, 258), (80, 66), (65, 45), (10, 8), (1, 1)]
)
def test_an_image_takes_no_more_than_it_may(readers: Any, most: int, count: int) -> None:
    found = plan(readers().image, Picture((1920, 1080)), MediaRequest(max_tokens=most)).count
    assert found <= most
    assert found >= count * 0.6


def test_an_image_that_cannot_be_so_small_is_refused(readers: Any) -> None:
    with pytest.raises(ValueError, match="soft tokens or more, and may take 2"):
        plan(readers().image, Picture((5000, 50)), MediaRequest(max_tokens=2))


# Videos.


def test_a_video_is_a_row_of_images_one_a_second(readers: Any) -> None:
    footage, reader = Footage(100, (320, 180), 30.0), readers().video
    clip = footage.clip
    layout = plan(reader, clip)
    soft = Soft("<|video_pad|>", 66, (6, 11))
    assert layout.pieces == (
        "<image_id>0</image_id><image>", soft, *["</image><image>", soft] * 3, "</image>",
    )  # fmt: skip
    assert not footage.decoded
    views = reader.prepare(clip, layout).views()
    assert [caption for caption, _ in views] == ["0.0 s", "1.0 s", "2.0 s", "3.0 s"]
    assert [int(view[0, 0, 0]) for _, view in views] == [0, 30, 60, 90]


def test_the_later_version_does_not_number_videos(readers: Any) -> None:
    found = readers(name="4.7, untied")
    clip = film(count=2, fps=2.0)
    assert plan(found.video, clip).pieces[0] == "<image>"
    assert plan(found.image, Picture((60, 60))).pieces[0] == "<image_id>0</image_id><image>"


def test_frames_between_are_stacked_behind_their_second(readers: Any) -> None:
    files = {"video_preprocessor_config.json": {"stack_frames": 3, "max_slice_nums": 1}}
    clip, reader = film(count=60, fps=30.0), readers(files).video
    layout = plan(reader, clip)
    assert len(layout.runs) == 4
    views = reader.prepare(clip, layout).views()
    assert [caption for caption, _ in views] == ["0.0 s", "0.3, 0.7 s", "1.0 s", "1.3, 1.6 s"]
    assert views[1][1].shape[0] > views[0][1].shape[0]
    # Wide frames lie below one another. Moments are cut to whole frames.
    assert int(views[1][1][0, 0, 0]) == 10
    assert int(views[1][1][-1, 0, 0]) == 20


def test_a_request_says_how_often_and_how_much_of_a_video(readers: Any) -> None:
    reader, clip = readers().video, film(count=300, fps=30.0)
    assert len(plan(reader, clip).runs) == 10
    assert len(plan(reader, clip, MediaRequest(fps=2)).runs) == 20
    assert len(plan(reader, clip, MediaRequest(fps=2, max_frames=5)).runs) == 5
    assert len(plan(reader, clip, MediaRequest(max_frames=4)).runs) == 4


@settings(max_examples=20)
@given(st.integers(9, 3000), st.integers(1, 4000), st.sampled_from([0.5, 24.0, 29.97, None]))
def test_a_video_takes_no_more_than_it_may(most: int, count: int, fps: float | None) -> None:
    from phyla_families.minicpm.preprocessing import VideoSettings
    from phyla_families.minicpm.tower_config import TowerConfig
    from phyla_families.minicpm.video_reader import VideoReader

    tower = TowerConfig.model_validate(
        {
            "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 7,
            "num_attention_heads": 1, "image_size": 28, "patch_size": 14,
        }
    )  # fmt: skip
    reader = VideoReader(VideoSettings(), tower, number=False)
    clip = film(count=count, fps=fps, size=(1280, 720))
    found = plan(reader, clip, MediaRequest(max_tokens=most))
    assert 0 < found.count <= most
    with pytest.raises(ValueError, match="one moment takes"):
        plan(reader, film(count=count, fps=fps, size=(9000, 90)), MediaRequest(max_tokens=3))


@given(
    st.integers(1, 3000), st.sampled_from([0.5, 8.0, 29.97]), st.integers(1, 40), st.integers(1, 5),
    st.floats(0.05, 20),
)  # fmt: skip
def test_moments_are_few_enough_and_in_order(
    count: int, fps: float, most: int, stack: int, period: float
) -> None:
    clip = film(count, fps)
    for units in (
        sampled(clip, most=most, stack=stack),
        every(clip, 1 / period, most=most, stack=stack),
    ):
        assert all(0 <= index < count for unit in units for index in unit)
        mains = [unit[0] for unit in units] if stack < 3 else []
        assert len(units) <= most * min(stack, 2)
        if stack == 1:
            assert mains == sorted(mains)
            assert mains[0] == 0


def test_frames_that_are_not_evenly_spaced_are_found_by_their_times() -> None:
    frame = clock(Footage(5, fps=0.5, times=[0.0, 0.1, 0.2, 5.0, 9.0]).clip)
    assert [frame(moment) for moment in (0, 0.15, 4, 5, 8, 20)] == [0, 1, 2, 3, 3, 4]


@pytest.mark.parametrize("stack", [1, 3])
@pytest.mark.parametrize("fps", [60.0, 1e9, 1e308, float("inf"), 5e-324])
def test_there_are_no_more_moments_than_frames(fps: float, stack: int) -> None:
    for clip in (film(6, 30.0), film(6, None), Footage(2, fps=30.0, times=[0.0, 0.0]).clip):
        units = every(clip, fps, most=50_000, stack=stack)
        mains = [unit[0] for unit in units] if stack == 1 else []
        assert len(units) <= (clip.count if fps > 1 else 1) * min(stack, 2)
        assert units[0] == (clip.count - 1 if clip.timestamps[-1] == 0 else 0,)
        if stack == 1 and fps > 1 and clip.count == 6:
            assert mains == list(range(6))


def test_a_video_is_decoded_once_and_its_frames_are_let_go(readers: Any) -> None:
    files = {"video_preprocessor_config.json": {"stack_frames": 3, "max_slice_nums": 1}}
    footage = Footage(100, (320, 180), 5.0)
    for reader, frames in ((readers().video, 100), (readers(files).video, 60)):
        footage = Footage(100, (320, 180), 5.0)
        found = plan(reader, footage.clip, MediaRequest(fps=96 if frames == 100 else 1))
        arrays = reader.prepare(footage.clip, found).arrays
        assert len(arrays["patches"]) == 16 * found.count
        assert len(footage.decoded) == frames
        assert footage.passes == 1
        assert footage.most_held <= 4


@given(
    st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4).map(tuple), min_size=1, max_size=9)
)
def test_units_in_any_order_get_their_frames(units: list[tuple[int, ...]]) -> None:
    footage = Footage(10, (4, 4))
    found = dict(pictures(footage.clip, units))
    assert footage.passes == 1
    for place, unit in enumerate(units):
        frames = footage.clip.frames(sorted(set(unit)))
        by_index = dict(zip(sorted(set(unit)), frames, strict=True))
        assert (found[place] == canvas([by_index[index] for index in unit])).all()


@pytest.mark.parametrize(
    ("count", "size", "grid"),
    [
        (1, (9, 9), (1, 1)), (2, (10, 20), (2, 1)), (2, (20, 10), (1, 2)), (2, (9, 9), (2, 1)),
        (3, (10, 30), (3, 1)), (3, (30, 10), (1, 3)), (4, (10, 90), (2, 2)), (5, (9, 9), (1, 5)),
    ],
)  # fmt: skip
def test_frames_on_a_canvas_come_near_a_square(
    count: int, size: tuple[int, int], grid: tuple[int, int]
) -> None:
    assert canvas_grid(count, size) == grid
    frames = [np.full((*size, 3), 7 + index, np.uint8) for index in range(count)]
    sheet = canvas(frames)
    assert sheet.shape[0] == grid[0] * size[0] + 6 * (grid[0] - 1)
    assert sheet.shape[1] == grid[1] * size[1] + 6 * (grid[1] - 1)
    assert np.count_nonzero(sheet) == count * size[0] * size[1] * 3
    assert sheet[-1, -1, 0] == 7 + count - 1


# Preprocessor files.


def test_both_ways_to_keep_settings_are_read(readers: Any) -> None:
    wide = Picture((1920, 1080))
    keys = {"max_slice_nums": 36, "use_image_id": False, "size": None, "image_mean": [0.0] * 3}
    for files in (
        {"preprocessor_config.json": keys},
        {"processor_config.json": {"image_processor": keys}},
        {"processor_config.json": {"image_processor": {**keys, "use_image_id": True},
                                   "use_image_id": False},
         "preprocessor_config.json": {"max_slice_nums": 2}},
    ):  # fmt: skip
        reader = readers(files).image
        found = reader.plan(wide, NOTHING)
        assert found.pieces[0] == "<image>"
        assert found.count == 66 + 12 * 63
        assert reader.prepare(Picture((20, 20)), plan(reader, Picture((20, 20)))).arrays[
            "shift"
        ] == pytest.approx([0.0] * 3)


def test_videos_have_settings_of_their_own_or_those_of_images(readers: Any) -> None:
    clip = film(count=1, fps=1.0, size=(1920, 1080))
    pictures = {"preprocessor_config.json": {"max_slice_nums": 1}}
    videos = {"video_preprocessor_config.json": {"max_slice_nums": 36}}
    assert plan(readers(pictures).video, clip).count == 66
    assert plan(readers({**pictures, **videos}).video, clip).count == 66 + 12 * 63
    nested = {"processor_config.json": {"video_processor": {"slice_mode": False}}}
    assert plan(readers({**nested, **videos}).video, clip).count == 66


def test_frames_may_be_taken_as_they_are(readers: Any) -> None:
    files = {"video_preprocessor_config.json": {"do_sample_frames": False, "max_num_frames": 6}}
    assert len(plan(readers(files).video, film(count=5, fps=30.0)).runs) == 5
    assert len(plan(readers(files).video, film(count=50, fps=30.0)).runs) == 6


@pytest.mark.parametrize(
    ("keys", "word"),
    [
        ({"patch_size": 0}, "patch_size"), ({"patch_size": 16}, "14, as config.json"),
        ({"downsample_mode": "4x"}, "'16x', as config.json"),
        ({"downsample_mode": "2x"}, "downsample_mode"), ({"scale_resolution": 0}, "scale_resol"),
        ({"max_slice_nums": "many"}, "max_slice_nums"), ({"image_std": [1, 1, 0]}, "image_std"),
        ({"image_mean": [1, 1]}, "image_mean"), ({"do_resize": False}, "do_resize"),
        ({"resample": 9}, "resample"), ({"rescale_factor": 0}, "rescale_factor"),
    ],
)  # fmt: skip
def test_nonsense_in_a_preprocessor_file_is_named(
    readers: Any, keys: dict[str, Any], word: str
) -> None:
    with pytest.raises(CheckpointError, match=word) as caught:
        readers({"preprocessor_config.json": keys})
    assert caught.value.file == "preprocessor_config.json"
    nested = {"processor_config.json": {"video_processor": keys}}
    with pytest.raises(CheckpointError, match="video_processor"):
        readers(nested)


@pytest.mark.parametrize("keys", [{"max_num_frames": 0}, {"stack_frames": 0}])
def test_nonsense_about_videos_is_named(readers: Any, keys: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match=next(iter(keys))):
        readers({"video_preprocessor_config.json": keys})


def test_a_part_that_is_no_mapping_is_named(readers: Any) -> None:
    with pytest.raises(CheckpointError, match="a mapping"):
        readers({"processor_config.json": {"image_processor": [1]}})
