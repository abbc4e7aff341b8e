"""What stands in a prompt for pictures, videos and sounds, and what the towers get of them."""

from __future__ import annotations

import tracemalloc
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phyla.checkpoint import Checkpoint
from phyla.checkpoint.checkpoint import TokenizerData
from phyla.errors import CheckpointError
from phyla.family import MediaReaders, MediaRequest, Plan, Soft
from phyla.media import mel_filters
from phyla.testing import read_tiny
from phyla.testing.footage import Footage
from phyla.testing.tokenizer import MARKS, tokenizer_json
from phyla_families.nemotron_h.audio_reader import AudioReader
from phyla_families.nemotron_h.config import Config
from phyla_families.nemotron_h.image_reader import ImageReader
from phyla_families.nemotron_h.media import media
from phyla_families.nemotron_h.mel import MelFrames
from phyla_families.nemotron_h.positions import stretched
from phyla_families.nemotron_h.preprocessing import ImageSettings, MelSettings, VideoSettings
from phyla_families.nemotron_h.projector import pixel_shuffle
from phyla_families.nemotron_h.sizes import frame_grid, picture_grid, shortened
from phyla_families.nemotron_h.video_reader import VideoReader
from phyla_families.nemotron_h.vision import patchify

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from phyla.media import VideoClip

TABLE = read_tiny(Path(__file__).with_name("media_tiny.json"))
CONFIG = TABLE["everything"].config


@dataclass
class Picture:
    size: tuple[int, int]

    def pixels(self) -> NDArray[np.uint8]:
        """A black picture with a white half."""
        width, height = self.size
        picture = np.zeros((height, width, 3), np.uint8)
        picture[:, width // 2 :] = 255
        return picture


def film(
    size: tuple[int, int] = (64, 32),
    count: int = 8,
    fps: float | None = 4.0,
    times: Sequence[float] | None = None,
) -> VideoClip:
    return Footage(count, size, fps, times).clip


@dataclass
class Sound:
    length: int

    @property
    def seconds(self) -> float:
        return self.length / 16000

    def samples(self, rate: int) -> NDArray[np.float32]:
        assert rate == 16000
        wave = np.sin(np.arange(self.length) ** 1.5 / 500) * 0.3
        return wave.astype(np.float32)


def images(**changes: Any) -> ImageReader:
    return ImageReader(ImageSettings(**changes), 16)


def videos(**changes: Any) -> VideoReader:
    return VideoReader(VideoSettings(**changes), 16, 2)


def sounds() -> AudioReader:
    return AudioReader(MelSettings(), 128, 8)


def plan(reader: Any, item: object, **request: Any) -> Plan:
    return reader.plan(item, MediaRequest(**request))


def written(found: Plan) -> str:
    return "".join(
        f"[{piece.count}]" if isinstance(piece, Soft) else piece for piece in found.pieces
    )


# Pictures.


@pytest.mark.parametrize(
    ("size", "count"),
    [
        ((224, 224), 256),
        ((64, 32), 276),
        ((512, 512), 256),
        ((1000, 500), 512),
        ((500, 1000), 512),
        ((1024, 1024), 1024),
        ((1536, 1536), 2304),
        ((1920, 1080), 2040),
    ],
)
def test_pictures_take_the_published_numbers_of_tokens(size: tuple[int, int], count: int) -> None:
    found = plan(images(), Picture(size))
    assert found.count == count
    assert written(found) == f"<img>[{count}]</img>"
    (run,) = found.runs
    assert run.token == "<image>"
    assert run.grid is not None
    assert run.grid[0] * run.grid[1] == count


def test_a_picture_is_planned_by_its_size_alone() -> None:
    class Header:
        size = (640, 480)

    assert plan(images(), Header()).count == 1200 // 4


@given(width=st.integers(1, 6000), height=st.integers(1, 6000), tokens=st.integers(1, 3500))
def test_no_picture_takes_more_tokens_than_asked_for(width: int, height: int, tokens: int) -> None:
    found = plan(images(), Picture((width, height)), max_tokens=tokens)
    assert 1 <= found.count <= tokens


def test_a_budget_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one token"):
        plan(images(), Picture((64, 64)), max_tokens=0)
    with pytest.raises(ValueError, match="at least one token"):
        plan(sounds(), Sound(16000), max_tokens=0)


def test_a_picture_of_which_nothing_would_be_left_is_refused() -> None:
    with pytest.raises(ValueError, match="shorter side"):
        plan(images(), Picture((10, 600_000)))


def test_the_context_length_of_the_file_bounds_pictures() -> None:
    settings = ImageSettings(max_model_len=404, min_num_patches=64)
    assert settings.most_patches == 1600
    assert ImageSettings(max_num_patches=0).most_patches == 4 * 16380
    assert ImageSettings(max_model_len=4).most_patches == 1024


def test_a_picture_of_the_right_size_stays_as_it_is() -> None:
    reader = images(min_num_patches=4)
    found = plan(reader, Picture((64, 32)))
    prepared = reader.prepare(Picture((64, 32)), found)  # pyright: ignore[reportArgumentType]
    frames = prepared.arrays["frames"]
    assert frames.dtype == np.uint8
    assert (frames[0] == Picture((64, 32)).pixels()).all()
    ((caption, view),) = prepared.views()
    assert caption == "64 x 32 pixels, 2 soft tokens"
    assert (view == frames[0]).all()


def test_an_overshoot_at_an_edge_is_kept_and_not_shown() -> None:
    reader = images()
    picture: Any = Picture((70, 50))
    prepared = reader.prepare(picture, plan(reader, picture))
    frames = prepared.arrays["frames"]
    assert frames.dtype == np.float16
    assert frames.min() < -5
    assert frames.max() > 260
    ((_, view),) = prepared.views()
    assert (view.min(), view.max(), view.dtype) == (0, 255, np.uint8)
    again = reader.prepare(picture, plan(reader, picture)).arrays["frames"]
    assert again.tobytes() == frames.tobytes()


def test_pixels_are_scaled_as_the_files_say() -> None:
    usual = ImageSettings()
    np.testing.assert_allclose(usual.affine.scale[0], 1 / 255 / 0.26862954)
    np.testing.assert_allclose(usual.affine.shift[0], -0.48145466 / 0.26862954)
    named: Any = {"norm_mean": [0.5, 0.5, 0.5], "norm_std": [0.25, 0.25, 0.25]}
    for kind in (ImageSettings, VideoSettings):
        assert kind.model_validate(named).affine.shift == (-2, -2, -2)
    raw = ImageSettings(do_rescale=False, do_normalize=False)
    assert (raw.affine.scale, raw.affine.shift) == ((1, 1, 1), (0, 0, 0))


def test_blocks_are_joined_row_by_row() -> None:
    numbered = mx.arange(2 * 4 * 6).reshape(2, 4, 6, 1)
    joined = np.array(pixel_shuffle(numbered))
    assert joined.shape == (12, 4)
    assert joined[0].tolist() == [0, 1, 6, 7]
    assert joined[1].tolist() == [2, 3, 8, 9]
    assert joined[3].tolist() == [12, 13, 18, 19]
    assert joined[6].tolist() == [24, 25, 30, 31]


def test_patches_hold_frame_by_frame_and_colour_by_colour() -> None:
    frames = np.arange(3 * 4 * 6 * 3).reshape(3, 4, 6, 3)
    found = np.array(patchify(mx.array(frames), 2, 2))
    assert found.shape == (2, 2, 3, 24)
    expected = [frames[f, 2 + y, 4 + x, c] for f in (0, 1) for c in range(3)
                for y in (0, 1) for x in (0, 1)]  # fmt: skip
    assert found[0, 1, 2].tolist() == expected
    assert (found[1, :, :, :12] == found[1, :, :, 12:]).all()


def test_positions_of_a_square_as_large_as_the_table_are_the_table() -> None:
    table = mx.arange(5 * 5 * 2, dtype=mx.float32).reshape(5, 5, 2)
    assert (np.array(stretched(table, 5, 5)) == np.array(table.reshape(25, 2))).all()
    assert (np.array(stretched(table, 2, 5)) == np.array(table[:2].reshape(10, 2))).all()


# Videos.


def test_a_video_is_pairs_of_frames_behind_their_times() -> None:
    found = plan(videos(), film(count=6))
    assert written(found) == (
        "Frame 1 sampled at 0.00 seconds and frame 2 sampled at 0.50 seconds: <img>[242]</img>\n"
        "Frame 3 sampled at 1.00 seconds: <img>[242]</img>"
    )
    assert {run.token for run in found.runs} == {"<image>"}
    assert found.runs[0].grid == (11, 22)


def test_frames_of_which_no_time_is_known_get_numbers() -> None:
    found = plan(videos(num_frames=3), film(fps=None))
    assert written(found).startswith("Frame 1 and frame 2: <img>")
    assert written(found).count("Frame 3: ") == 1


def test_times_are_whole_milliseconds_for_a_frame_unless_the_rate_changes() -> None:
    steady = film(count=300, fps=29.97)
    assert "Frame 19 sampled at 8.91 seconds" in written(plan(videos(), steady))  # at 270 * 33 ms
    uneven = film(count=4, fps=1.0, times=(2.0, 3.0, 9.0, 11.5))
    said = written(plan(videos(do_sample_frames=False), uneven))
    assert "Frame 3 sampled at 7.00 seconds and frame 4 sampled at 9.50 seconds" in said


@pytest.mark.parametrize(
    ("settings", "request_", "indices"),
    [
        ({}, {}, (0, 2, 4, 6)),
        ({"fps": 1.0}, {}, (0, 4)),
        ({"num_frames": 3}, {}, (0, 2, 5)),
        ({"num_frames": 30}, {}, (0, 1, 2, 3, 4, 5, 6, 7)),
        ({"do_sample_frames": False}, {}, (0, 1, 2, 3, 4, 5, 6, 7)),
        ({"do_sample_frames": False}, {"max_frames": 2}, (0, 4)),
        ({"num_frames": 3}, {"fps": 4.0}, (0, 1, 2, 3, 4, 5, 6, 7)),
        ({}, {"fps": 0.01}, (0,)),
        ({}, {"fps": 100.0, "max_frames": 1}, (0,)),
    ],
)
def test_frames_are_chosen_as_the_files_or_the_request_say(
    settings: dict[str, Any], request_: dict[str, Any], indices: tuple[int, ...]
) -> None:
    layout: Any = plan(videos(**settings), film(), **request_).layout
    assert layout.indices == indices


def test_a_long_video_is_not_looked_at_twice_a_second_for_ever() -> None:
    assert len(plan(videos(), film(count=40_000, fps=25.0)).runs) == 64


@given(
    width=st.integers(8, 3000),
    height=st.integers(8, 3000),
    count=st.integers(1, 9),
    tokens=st.integers(1, 2000),
)
def test_no_video_takes_more_tokens_than_asked_for(
    width: int, height: int, count: int, tokens: int
) -> None:
    clip = film((width, height), count)
    reader = videos(do_sample_frames=False)
    if tokens < -(-count // 2):
        with pytest.raises(ValueError, match="look at fewer frames"):
            plan(reader, clip, max_tokens=tokens)
    else:
        assert 1 <= plan(reader, clip, max_tokens=tokens).count <= tokens


@pytest.mark.parametrize("fps", [1e308, float("inf"), 5e-324])
def test_no_rate_is_too_high_or_too_low(fps: float) -> None:
    layout: Any = plan(videos(), film(), fps=fps).layout
    assert len(layout.indices) == (8 if fps > 1 else 1)


def test_frames_may_be_made_square() -> None:
    assert frame_grid(300, 100, target=1024) == (18, 56)
    assert frame_grid(300, 100, target=1023, square=True) == (30, 30)
    assert shortened(2, 1430, 40) == (2, 20)
    assert shortened(30, 2, 40) == (20, 2)
    assert picture_grid(48, 16, patch=16, least=1, most=100) == (2, 4)


def test_a_video_without_frames_or_without_a_rate_is_refused() -> None:
    with pytest.raises(ValueError, match="no frame"):
        plan(videos(), film(count=0))
    single = written(plan(videos(), film(count=1, fps=None)))
    assert single == "Frame 1: <img>[242]</img>"
    with pytest.raises(ValueError, match="source_fps"):
        plan(videos(), film(count=2, fps=None, times=(0.0, 0.0)))


def test_the_tower_gets_the_chosen_frames() -> None:
    reader = videos(video_target_num_patches=16)
    footage = Footage(20, (64, 32), 4.0)
    found = plan(reader, footage.clip)
    prepared = reader.prepare(footage.clip, found)
    assert footage.passes == 1
    assert footage.most_held <= 2
    frames = prepared.arrays["frames"]
    assert frames.shape == (10, 32, 96, 3)
    assert frames[:, 0, 0, 0].tolist() == list(range(0, 20, 2))
    captions = [caption for caption, _ in prepared.views()]
    assert captions[:2] == ["frame 1 sampled at 0.00 seconds", "frame 2 sampled at 0.50 seconds"]


# Sounds.


@pytest.mark.parametrize(
    ("samples", "count"),
    [(320, 1), (1119, 1), (1120, 1), (1279, 1), (1280, 2), (16000, 13), (480_000, 376)],
)
def test_sounds_take_a_token_for_80_milliseconds(samples: int, count: int) -> None:
    found = plan(sounds(), Sound(samples))
    assert written(found) == f"<so_start>[{count}]<so_end>"
    assert found.runs[0].token == "<so_embedding>"
    assert found.runs[0].grid is None


def test_a_sound_too_short_for_two_frames_is_refused() -> None:
    with pytest.raises(ValueError, match="too short"):
        plan(sounds(), Sound(319))


@given(samples=st.integers(320, 300_000), tokens=st.integers(1, 50))
def test_of_a_sound_the_beginning_is_heard_where_tokens_are_few(samples: int, tokens: int) -> None:
    whole = plan(sounds(), Sound(samples))
    found = plan(sounds(), Sound(samples), max_tokens=tokens)
    assert found.count == min(tokens, whole.count)


def test_the_encoder_gets_frames_of_which_each_bin_is_normalized() -> None:
    reader = sounds()
    sound: Any = Sound(16000)
    prepared = reader.prepare(sound, plan(reader, sound))
    mel = prepared.arrays["mel"]
    assert (mel.shape, mel.dtype) == ((101, 128), np.float32)
    np.testing.assert_allclose(mel[:-1].mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(mel[:-1].std(axis=0, ddof=1), 1, atol=1e-3)
    assert (mel[-1] == 0).all()
    ((caption, view),) = prepared.views()
    assert caption == "1.00 of 1.00 seconds, 13 tokens"
    assert (view.shape, view.dtype) == ((128, 101, 3), np.uint8)
    again = reader.prepare(sound, plan(reader, sound)).arrays["mel"]
    assert again.tobytes() == mel.tobytes()


# Files.


def readers(
    preprocessing: Mapping[str, Any] | None = None, *, marks: Sequence[str] = (*MARKS, "<video>")
) -> MediaReaders:
    checkpoint = Checkpoint(
        path=Path(),
        name="tiny",
        format="safetensors",
        config=CONFIG,
        generation_config={},
        tensors={},
        tokenizer=lambda: TokenizerData(json=tokenizer_json(marks)),
        chat_templates={},
        quantization=None,
        overrides={},
        load=dict,
        preprocessing=preprocessing or {},
    )
    return media(Config.read(CONFIG), checkpoint)


def test_without_files_the_usual_settings_hold() -> None:
    found = readers()
    assert found.image is not None
    assert plan(found.image, Picture((224, 224))).count == 28 * 28
    assert found.video is not None
    assert found.audio is not None


def test_the_file_of_pictures_speaks_of_videos_too_where_there_is_no_other() -> None:
    own = {"preprocessor_config.json": {"video_target_num_patches": 16, "min_num_patches": 4}}
    assert plan(readers(own).video, film((40, 40), 1)).count == 4
    both = {**own, "video_preprocessor_config.json": {"video_target_num_patches": 4}}
    assert plan(readers(both).video, film((40, 40), 1)).count == 1


@pytest.mark.parametrize(
    ("file", "content", "field"),
    [
        ("preprocessor_config.json", {"patch_size": 0}, "patch_size"),
        ("preprocessor_config.json", {"patch_size": 16}, "patch_size"),
        ("preprocessor_config.json", {"downsample_ratio": 0.25}, "downsample_ratio"),
        ("preprocessor_config.json", {"min_num_patches": "many"}, "min_num_patches"),
        ("preprocessor_config.json", {"image_std": [1, 0, 1]}, "image_std[1]"),
        ("preprocessor_config.json", {"hop_length": 0}, "hop_length"),
        ("preprocessor_config.json", {"feature_size": 80}, "feature_size"),
        ("video_preprocessor_config.json", {"temporal_patch_size": 4}, "temporal_patch_size"),
        ("video_preprocessor_config.json", {"fps": -1}, "fps"),
        ("processor_config.json", {"image_processor": []}, "image_processor"),
        ("processor_config.json", {"video_processor": {"norm_mean": [1]}},
         "video_processor.norm_mean"),
        ("processor_config.json", {"feature_extractor": {"n_fft": 300}}, "feature_extractor"),
    ],
)  # fmt: skip
def test_nonsense_in_a_file_is_refused_with_its_name(
    file: str, content: dict[str, Any], field: str
) -> None:
    with pytest.raises(CheckpointError) as failure:
        readers({file: content})
    assert failure.value.file == file
    assert failure.value.field is not None
    assert failure.value.field.startswith(field)


@pytest.mark.parametrize("at_once", [1, 7, 10**6])
@pytest.mark.parametrize("samples", [320, 321, 479, 5000])
def test_frames_of_a_sound_do_not_depend_on_how_many_are_made_at_once(
    samples: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    wave = Sound(samples).samples(16000)
    usual = MelFrames(MelSettings(), 40)
    # Worked out in one piece, from the formula.
    raised = wave.astype(np.float64)
    raised[1:] -= 0.97 * wave[:-1].astype(np.float64)
    padded = np.pad(raised, 256)
    window = np.pad(np.hanning(400), 56)
    frames = [padded[at : at + 512] * window for at in range(0, samples + 1, 160)]
    power = np.abs(np.fft.rfft(frames)) ** 2
    filters = mel_filters(40, 512, rate=16000, scale="slaney", equal_area=True)
    monkeypatch.setattr("phyla_families.nemotron_h.mel._AT_ONCE", at_once)
    np.testing.assert_allclose(
        usual.log_mel(wave), np.log(power @ filters + 2.0**-24), rtol=1e-9, atol=1e-9
    )


def test_long_sounds_need_little_more_memory_than_their_frames() -> None:
    wave = np.zeros(16000 * 60, np.float32)
    mel = MelFrames(MelSettings(), 128)
    tracemalloc.start()
    try:
        found = mel(wave)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # Frames of 128 bins: 8 bytes for each while it is worked on, 4 in the end.
    assert peak < 3 * found.nbytes + 16 * 2**20
