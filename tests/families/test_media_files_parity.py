"""Thirty assorted files as each family prepares them, beside transformers' processors.

Both sides get what `phyla.media` decodes. Where transformers has no processor that runs without
torchvision, torch's antialiased resize stands for it, which is what torchvision calls.
"""

from __future__ import annotations

import io
import math
from fractions import Fraction
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from phyla.family import MediaRequest
from phyla.media import open_audio, open_image, open_video
from phyla.testing.media_parity import resize_rows_first
from phyla_families.gemma4.audio_reader import MelReader, SampleReader
from phyla_families.gemma4.image_reader import ImageReader as GemmaImages
from phyla_families.gemma4.image_reader import Look
from phyla_families.gemma4.settings import MelSettings as GemmaMel
from phyla_families.gemma4.video_reader import Sampling
from phyla_families.gemma4.video_reader import VideoReader as GemmaVideos
from phyla_families.lfm2_vl.image_reader import ImageReader as LfmImages
from phyla_families.lfm2_vl.image_settings import ImageSettings as LfmSettings
from phyla_families.lfm2_vl.tiling import Views
from phyla_families.minicpm.image_reader import ImageReader as MiniCPMImages
from phyla_families.minicpm.preprocessing import PictureSettings
from phyla_families.minicpm.preprocessing import VideoSettings as MiniCPMVideoSettings
from phyla_families.minicpm.video_reader import VideoReader as MiniCPMVideos
from phyla_families.nemotron_h.audio_reader import AudioReader as NemotronSounds
from phyla_families.nemotron_h.image_reader import ImageReader as NemotronImages
from phyla_families.nemotron_h.preprocessing import ImageSettings as NemotronSettings
from phyla_families.nemotron_h.preprocessing import MelSettings as NemotronMel
from phyla_families.nemotron_h.preprocessing import VideoSettings as NemotronVideoSettings
from phyla_families.nemotron_h.video_reader import VideoReader as NemotronVideos
from phyla_families.qwen3.image_reader import ImageReader as QwenImages
from phyla_families.qwen3.preprocessing import ImageSettings as QwenSettings
from phyla_families.qwen3.preprocessing import VideoSettings as QwenVideoSettings
from phyla_families.qwen3.video_reader import VideoReader as QwenVideos

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray
    from PIL.Image import Image as Picture

    from phyla.family import Plan, Prepared
    from phyla.media import AudioClip

    Bytes = NDArray[np.uint8]
    # Our pixels and the reference's, in levels from 0 to 255.
    Levels = tuple[NDArray[Any], NDArray[Any]]

pytestmark = [pytest.mark.parity, pytest.mark.usefixtures("one_torch_thread")]

CHANNELS: Any = {"input_data_format": "channels_last"}  # of a pixel the processors cannot tell
MOST_LEVELS = 2  # of 255
MOST_MEL = 1e-3
RATE = 16000


# Files.


def photo(width: int, height: int, seed: int = 0) -> Bytes:
    """Waves with edges and some noise `[H, W, 3]`."""
    y, x = np.mgrid[:height, :width]
    waves = [np.sin(x / (4 + c + seed) + y / (6 - c)) for c in range(3)]
    picture = 127 + 90 * np.stack(waves, axis=-1)
    picture += np.random.default_rng(seed).normal(0, 9, picture.shape)
    picture[height // 3 : height // 2, width // 4 : width // 2] = 255
    picture[height // 2 : height * 2 // 3, width // 2 :] = (200, 30, 0)
    return np.clip(picture, 0, 255).astype(np.uint8)


def page(width: int, height: int) -> Bytes:
    """Black on white, as text is: any overshoot of a filter shows."""
    y, x = np.mgrid[:height, :width]
    return np.where(((x + y) // 7 % 2)[..., None].repeat(3, axis=-1), 255, 0).astype(np.uint8)


def saved(picture: Picture, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


def turned(orientation: int) -> bytes:
    """A JPEG whose EXIF says how to turn it."""
    from PIL import Image

    exif = Image.Exif()
    exif[0x0112] = orientation
    pixels = photo(99 + 14 * orientation, 61, orientation)
    return saved(Image.fromarray(pixels), "JPEG", exif=exif, quality=88)


def picture_file(name: str) -> bytes:
    from PIL import Image

    def image(width: int, height: int) -> Picture:
        return Image.fromarray(photo(width, height, len(name)))

    match name.split():
        case ["jpeg", "turned", orientation]:
            return turned(int(orientation))
        case ["jpeg", "cmyk"]:
            return saved(image(133, 87).convert("CMYK"), "JPEG")
        case ["jpeg", "grey"]:
            return saved(image(64, 201).convert("L"), "JPEG", progressive=True)
        case ["jpeg", "panorama"]:
            return saved(image(1201, 31), "JPEG")
        case ["png", "rgba"]:
            picture = image(75, 131)
            picture.putalpha(Image.fromarray(photo(75, 131, 3)[..., 0]))
            return saved(picture, "PNG")
        case ["png", "palette"]:
            return saved(Image.fromarray(page(661, 457)).quantize(7), "PNG", transparency=5)
        case ["png", "16", "bits"]:
            deep = photo(101, 57).astype(np.uint16)[..., 0] * 257 + 101
            return saved(Image.fromarray(deep), "PNG")
        case ["png", "of", "one", "pixel"]:
            return saved(image(1, 1), "PNG")
        case ["webp", "tall"]:
            return saved(image(29, 640), "WEBP", quality=70)
        case ["webp", "large"]:
            return saved(image(1501, 1099), "WEBP", quality=80)
        case ["gif"]:
            return saved(image(333, 222).quantize(200), "GIF")
        case _:
            raise ValueError(name)


PICTURES = (
    *[f"jpeg turned {orientation}" for orientation in range(1, 9)],
    "jpeg cmyk", "jpeg grey", "jpeg panorama", "png rgba", "png palette", "png 16 bits",
    "png of one pixel", "webp tall", "webp large", "gif",
)  # fmt: skip


def sound_file(rate: int, container: str, codec: str, layout: str, seconds: float) -> bytes:
    """A sweep that grows louder, some noise, and a silent end; each channel a little other."""
    import av

    channels = {"mono": 1, "stereo": 2}[layout]
    time = np.arange(int(seconds * rate)) / rate
    rng = np.random.default_rng(rate)
    waves = [
        0.4 * time / seconds * np.sin(2 * np.pi * (150 + 30 * channel + 900 * time) * time)
        + 0.02 * rng.normal(size=len(time))
        for channel in range(channels)
    ]
    samples = np.stack(waves, axis=-1).astype(np.float32)
    samples[-len(samples) // 8 :] = 0
    file = io.BytesIO()
    with av.open(file, "w", format=container) as output:
        track: Any = output.add_stream(codec, rate=rate, layout=layout)
        frame: Any = av.AudioFrame.from_ndarray(samples.reshape(1, -1), format="flt", layout=layout)
        frame.sample_rate, frame.pts = rate, 0
        resampler = av.AudioResampler(track.format, layout, rate, frame_size=track.frame_size or 0)
        for piece in [*resampler.resample(frame), *resampler.resample(None)]:
            output.mux(track.encode(piece))
        output.mux(track.encode(None))
    return file.getvalue()


SOUNDS: Mapping[str, tuple[int, str, str, str, float]] = {
    "wav, 8 bits, 8 kHz": (8000, "wav", "pcm_u8", "mono", 1.3),
    "wav, 16 bits, stereo": (16000, "wav", "pcm_s16le", "stereo", 2.0),
    "wav, 24 bits, 44.1 kHz": (44100, "wav", "pcm_s24le", "stereo", 0.9),
    "wav, floats, 11.025 kHz": (11025, "wav", "pcm_f32le", "mono", 1.71),
    "flac, 22.05 kHz": (22050, "flac", "flac", "mono", 3.21),
    "flac, 96 kHz": (96000, "flac", "flac", "stereo", 0.33),
    "mp3, 44.1 kHz": (44100, "mp3", "libmp3lame", "stereo", 1.5),
    "ogg, 48 kHz": (48000, "ogg", "libopus", "stereo", 1.11),
}


def film_file(
    container: str, codec: str, pixels: str, size: tuple[int, int], count: int, rate: Fraction
) -> bytes:
    import av

    file = io.BytesIO()
    with av.open(file, "w", format=container) as output:
        stream: Any = output.add_stream(codec, rate=rate)
        stream.width, stream.height = size
        stream.pix_fmt = pixels
        for place in range(count):
            frame = av.VideoFrame.from_ndarray(photo(*size, place % 5), format="rgb24")
            frame.pts, frame.time_base = place, 1 / rate
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    return file.getvalue()


FILMS: Mapping[str, tuple[str, str, str, tuple[int, int], int, Fraction]] = {
    "mp4": ("mp4", "libx264", "yuv420p", (98, 66), 7, Fraction(4)),
    "mp4, 29.97 fps": ("mp4", "mpeg4", "yuv420p", (64, 128), 21, Fraction(30000, 1001)),
    "webm": ("webm", "libvpx-vp9", "yuv420p", (150, 50), 5, Fraction(2)),
    "gif": ("gif", "gif", "rgb8", (61, 47), 6, Fraction(5)),
}


def test_there_are_thirty_files() -> None:
    assert len(PICTURES) + len(SOUNDS) + len(FILMS) == 30


# Pictures.


def torch_resized(pixels: Bytes, size: tuple[int, int], mode: str) -> NDArray[np.uint8]:
    """What torchvision does with a picture of bytes."""
    import torch

    planes = torch.tensor(pixels).permute(2, 0, 1)[None]
    out = torch.nn.functional.interpolate(planes, size, mode=mode, antialias=True)
    return out[0].permute(1, 2, 0).numpy()


def scaled(arrays: Mapping[str, NDArray[Any]], name: str) -> NDArray[Any]:
    """What the tower is given, from -1 to 1, in levels."""
    return (arrays[name] * arrays["scale"] + arrays["shift"] + 1) * 127.5


class Qwen3:
    images = QwenImages(QwenSettings(), 32)
    videos = QwenVideos(QwenVideoSettings(), 32, 2)

    @staticmethod
    def levels(pixels: Bytes, plan: Plan, prepared: Prepared) -> Levels:
        from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import (
            Qwen2VLImageProcessorPil,
        )

        processor = Qwen2VLImageProcessorPil(
            size={"shortest_edge": 65536, "longest_edge": 16777216},
            patch_size=16,
            image_mean=[0.5] * 3,
            image_std=[0.5] * 3,
        )
        theirs = processor(images=pixels, return_tensors="np", **CHANNELS)
        assert theirs["image_grid_thw"][0].prod() // 4 == plan.count
        found = scaled(prepared.arrays, "frames")[0]
        rows, columns = found.shape[0] // 32, found.shape[1] // 32
        cut = found.reshape(rows, 2, 16, columns, 2, 16, 3).transpose(0, 3, 1, 4, 6, 2, 5)
        expected = theirs["pixel_values"].reshape(-1, 3, 2, 16, 16)[:, :, 0]
        return cut.reshape(-1, 3, 16, 16), (expected + 1) * 127.5

    @staticmethod
    def frames(frames: Bytes, plan: Plan, prepared: Prepared) -> Levels:
        layout: Any = plan.layout
        size = layout.height, layout.width
        expected = [torch_resized(frame, size, "bicubic") for frame in frames]
        return scaled(prepared.arrays, "frames"), np.stack(expected)


class Gemma4:
    images = GemmaImages(Look(side=48, longest=3413, budget=280, resample=3))
    videos = GemmaVideos(
        Look(side=48, longest=3413, budget=70, resample=3), Sampling(frames=32, fps=None)
    )

    @staticmethod
    def levels(pixels: Bytes, plan: Plan, prepared: Prepared, budget: int = 280) -> Levels:
        from transformers.models.gemma4.image_processing_pil_gemma4 import Gemma4ImageProcessorPil

        theirs = Gemma4ImageProcessorPil(max_soft_tokens=budget)(pixels, **CHANNELS)
        assert theirs["num_soft_tokens_per_image"] == [plan.runs[0].count]
        found = prepared.arrays["pixels"][0]
        rows, columns = found.shape[0] // 16, found.shape[1] // 16
        cut = found.reshape(rows, 16, columns, 16, 3).transpose(0, 2, 1, 3, 4).reshape(-1, 768)
        values = np.asarray(theirs["pixel_values"][0])
        assert not values[rows * columns :].any()
        return cut, values[: rows * columns] * 255

    @classmethod
    def frames(cls, frames: Bytes, plan: Plan, prepared: Prepared) -> Levels:
        pairs = [
            cls.levels(frame, plan, SimpleNamespace(arrays={"pixels": ours[None]}), 70)  # pyright: ignore[reportArgumentType]
            for frame, ours in zip(frames, prepared.arrays["pixels"], strict=True)
        ]
        found, expected = zip(*pairs, strict=True)
        return np.stack(found), np.stack(expected)


class MiniCPM:
    tower: Any = SimpleNamespace(patch_size=14, unit=56)
    images = MiniCPMImages(PictureSettings(), tower, number=True)
    videos = MiniCPMVideos(MiniCPMVideoSettings(), tower, number=True)

    @classmethod
    def levels(cls, pixels: Bytes, plan: Plan, prepared: Prepared) -> Levels:
        return cls.frames(pixels[None], plan, prepared)

    @staticmethod
    def frames(frames: Bytes, plan: Plan, prepared: Prepared) -> Levels:
        """Each frame, and each picture of it, is an image."""
        from transformers.models.minicpmv4_6.image_processing_pil_minicpmv4_6 import (
            MiniCPMV4_6ImageProcessorPil,
        )

        processor = MiniCPMV4_6ImageProcessorPil()
        theirs = [processor(frame, return_tensors="np", **CHANNELS) for frame in frames]
        grids = [grid for each in theirs for grid in np.asarray(each["target_sizes"]).tolist()]
        assert prepared.arrays["grids"].tolist() == grids
        assert plan.count == sum(rows * columns for rows, columns in grids) // 16
        packed = scaled(prepared.arrays, "patches").transpose(3, 1, 0, 2).reshape(1, 3, 14, -1)
        values = np.concatenate([each["pixel_values"] for each in theirs], axis=-1)
        return packed, (values + 1) * 127.5


class Lfm2:
    images = LfmImages(LfmSettings(downsample_factor=2, encoder_patch_size=16))

    @staticmethod
    def levels(pixels: Bytes, plan: Plan, prepared: Prepared) -> Levels:
        views = plan.layout
        assert isinstance(views, Views)
        assert views.whole is not None
        expected = [torch_resized(pixels, views.whole, "bilinear")]
        if views.tiles:
            size = 512 * views.rows, 512 * views.columns
            rows = np.split(torch_resized(pixels, size, "bilinear"), views.rows)
            expected[:0] = [tile for row in rows for tile in np.split(row, views.columns, axis=1)]
        found = [shown.ravel() for _, shown in prepared.views()]
        return np.concatenate(found), np.concatenate([each.ravel() for each in expected])


class Nemotron:
    images = NemotronImages(NemotronSettings(), 16)
    videos = NemotronVideos(NemotronVideoSettings(), 16, 2)

    @classmethod
    def levels(cls, pixels: Bytes, plan: Plan, prepared: Prepared) -> Levels:
        return cls.frames(pixels[None], plan, prepared)

    @staticmethod
    def frames(frames: Bytes, plan: Plan, prepared: Prepared) -> Levels:
        """The reference resizes floats and keeps what lies beyond 0 and 255."""
        import torch
        from transformers.utils.constants import OPENAI_CLIP_MEAN, OPENAI_CLIP_STD

        layout: Any = plan.layout
        planes = torch.tensor(frames, dtype=torch.float32).permute(0, 3, 1, 2)
        out = torch.nn.functional.interpolate(
            planes, (layout.height, layout.width), mode="bicubic", antialias=True
        )
        arrays = prepared.arrays
        found = arrays["frames"].astype(np.float32) * arrays["scale"] + arrays["shift"]
        levels = 255 * (found * np.array(OPENAI_CLIP_STD) + np.array(OPENAI_CLIP_MEAN))
        return levels, out.permute(0, 2, 3, 1).numpy()


READERS: Mapping[str, Any] = {
    "qwen3": Qwen3, "gemma4": Gemma4, "minicpm": MiniCPM, "lfm2_vl": Lfm2, "nemotron_h": Nemotron,
}  # fmt: skip


def assert_levels_close(levels: Levels) -> None:
    found, expected = levels
    assert found.shape == expected.shape
    assert np.abs(found - expected.astype(np.float64)).max() <= MOST_LEVELS + 1e-3


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_have_the_references_pixels(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    picture = open_image(picture_file(name))
    pixels = picture.pixels()
    assert pixels.shape == (picture.size[1], picture.size[0], 3)
    for family in READERS.values():
        plan = family.images.plan(picture, MediaRequest())
        prepared = family.images.prepare(picture, plan)
        with monkeypatch.context() as patch:
            resize_rows_first(patch)
            levels = family.levels(pixels, plan, prepared)
        assert_levels_close(levels)


@pytest.mark.parametrize("name", FILMS)
def test_frames_have_the_references_pixels(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    film = open_video(film_file(*FILMS[name]))
    assert film.count == FILMS[name][4]
    for family in READERS.values():
        if family is Lfm2:
            continue
        plan = family.videos.plan(film, MediaRequest())
        layout: Any = plan.layout
        indices = (
            [index for unit in layout.units for index in unit]
            if family is MiniCPM
            else layout.indices
        )
        prepared = family.videos.prepare(film, plan)
        frames = film.frames(indices)
        with monkeypatch.context() as patch:
            resize_rows_first(patch)
            levels = family.frames(frames, plan, prepared)
        assert_levels_close(levels)


# Sounds.


@pytest.fixture(scope="module", params=SOUNDS)
def sound(request: pytest.FixtureRequest) -> AudioClip:
    return open_audio(sound_file(*SOUNDS[request.param]))


def test_sounds_have_gemma4s_spectrograms(sound: AudioClip) -> None:
    from transformers.models.gemma4.feature_extraction_gemma4 import Gemma4AudioFeatureExtractor

    reader = MelReader(GemmaMel())
    plan = reader.plan(sound, MediaRequest())
    found = reader.prepare(sound, plan).arrays["frames"]
    theirs = Gemma4AudioFeatureExtractor()([sound.samples(RATE)])
    heard = np.asarray(theirs["input_features_mask"][0])
    assert plan.count == math.ceil(heard.sum() / 4)
    expected = np.asarray(theirs["input_features"][0])[heard]
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= MOST_MEL


def test_sounds_have_the_samples_of_gemma4_without_towers(sound: AudioClip) -> None:
    from transformers.models.gemma4_unified.feature_extraction_gemma4_unified import (
        Gemma4UnifiedAudioFeatureExtractor,
    )

    reader = SampleReader(RATE, 640)
    plan = reader.plan(sound, MediaRequest())
    theirs = Gemma4UnifiedAudioFeatureExtractor()(sound.samples(RATE))["input_features"][0]
    np.testing.assert_array_equal(reader.prepare(sound, plan).arrays["frames"], theirs)
    assert plan.count == len(theirs)


def test_sounds_have_nemotrons_spectrograms(sound: AudioClip) -> None:
    """The reference's transform is a float32: where a band is nearly silent, as above half the rate
    of the file, it is off by what shows once the band is brought to a deviation of 1.
    """
    from transformers.models.parakeet.feature_extraction_parakeet import ParakeetFeatureExtractor

    reader = NemotronSounds(NemotronMel(), 128, 8)
    plan = reader.plan(sound, MediaRequest())
    found = reader.prepare(sound, plan).arrays["mel"]
    extractor = ParakeetFeatureExtractor(feature_size=128)
    theirs = extractor([sound.samples(RATE)], sampling_rate=RATE, return_tensors="np")
    expected = np.asarray(theirs["input_features"][0])
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= MOST_MEL
