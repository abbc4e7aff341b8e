"""Pictures, videos and sounds, beside transformers: sizes, pixels, spectrograms, features, logits."""

from __future__ import annotations

import ast
import importlib.util
import math
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
import pytest

from phyla.engine.layers import Allocation
from phyla.family import MediaRequest, Soft, Step
from phyla.testing import (
    MARKS,
    Forward,
    assert_close,
    prompt_ids,
    random_tensor,
    read_tiny,
    write_files,
)
from phyla.testing.footage import Footage
from phyla.testing.media_parity import MediaParity, Mixed, beside, show_media
from phyla.testing.reference import random_tensors, tensor_shapes
from phyla.testing.sight import template
from phyla_families.nemotron_h.audio_reader import AudioReader
from phyla_families.nemotron_h.image_reader import ImageReader
from phyla_families.nemotron_h.mel import MelFrames
from phyla_families.nemotron_h.preprocessing import ImageSettings, MelSettings, VideoSettings
from phyla_families.nemotron_h.sizes import frame_grid
from phyla_families.nemotron_h.video_reader import VideoReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from phyla.engine.media import MediaItem
    from phyla.media import VideoClip

pytestmark = [pytest.mark.parity, pytest.mark.usefixtures("one_torch_thread")]

TABLE = read_tiny(Path(__file__).with_name("media_tiny.json"))
IMAGE, SOUND = 270, 272
# Texts of the tokens from 270 on; those before them only take the ids up to there.
PLACES = ("<image>", "<video>", "<so_embedding>", "<img>", "</img>", "<so_start>", "<so_end>")
UNUSED = tuple(f"<|unused_{number}|>" for number in range(7))
SCALE = np.array([1 / 60, 1 / 70, 1 / 65], np.float32)
SHIFT = np.array([-2.0, -1.9, -1.8], np.float32)


def pixels(count: int, height: int, width: int) -> NDArray[np.uint8]:
    """Pictures of noise on a slope."""
    noise = random_tensor("pixels", (count, height, width, 3))
    slope = np.linspace(0, 1, width)[:, None]
    return np.clip(255 * (0.3 + 0.4 * slope + 0.1 * noise), 0, 255).astype(np.uint8)


class Side:
    """One tiny model on both sides."""

    def __init__(self, config: Mapping[str, Any], folder: Path) -> None:
        import torch
        from transformers import AutoConfig
        from transformers.models.nemotron_h_omni.modeling_nemotron_h_omni import (
            NemotronH_Omni_Reasoning_V3,
        )

        keys = {key: value for key, value in config.items() if key != "model_type"}
        known: Any = AutoConfig.for_model(config["model_type"], **keys)
        NemotronH_Omni_Reasoning_V3(known).save_pretrained(folder)
        tensors = random_tensors(tensor_shapes(folder))
        write_files(folder, config, tensors)
        show_media(
            folder,
            chat_template=template(image="<image>", video="<video>", audio="<so_embedding>"),
            marks=(*MARKS, *UNUSED, *PLACES),
            preprocessing={
                "preprocessor_config.json": {
                    "min_num_patches": 16, "max_num_patches": 64, "video_target_num_patches": 16,
                }
            },
        )  # fmt: skip
        self.folder = folder
        self.torch = torch
        self.reference: Any = NemotronH_Omni_Reasoning_V3.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager"
        ).eval()
        # See test_parity.py: transformers takes what initializes steps for a bound of theirs.
        for module in self.reference.modules():
            if "time_step_limit" in vars(module):
                module.time_step_limit = (0.0, math.inf)
        self.forward = Forward(folder)
        self.config: Any = self.forward.config

    def features(self, modality: Any, array: NDArray[Any]) -> NDArray[np.float32]:
        arrays = {"frames": array, "scale": SCALE, "shift": SHIFT}
        if modality == "audio":
            arrays = {"mel": array}
        given = {name: mx.array(each) for name, each in arrays.items()}
        return np.array(self.forward.model.media_features(modality, given).hidden)

    def picture(
        self,
        picture: NDArray[Any],
        scale: NDArray[np.float32] = SCALE,
        shift: NDArray[np.float32] = SHIFT,
    ) -> dict[str, Any]:
        """A picture as the reference's image processor hands it over."""
        size = self.config.vision.patch_size
        height, width, _ = picture.shape
        scaled = picture * scale + shift
        cut = scaled.reshape(height // size, size, width // size, size, 3).transpose(0, 2, 4, 1, 3)
        return {
            "pixel_values": self.torch.tensor(cut.reshape(-1, 3 * size**2)),
            "image_grid_hw": self.torch.tensor([[height // size, width // size]]),
        }

    def film(
        self,
        frames: NDArray[Any],
        scale: NDArray[np.float32] = SCALE,
        shift: NDArray[np.float32] = SHIFT,
    ) -> dict[str, Any]:
        """A video as the reference's video processor hands it over."""
        span = self.config.vision.span
        scaled = (frames * scale + shift).transpose(0, 3, 1, 2)
        filled = np.concatenate([scaled, *[scaled[-1:]] * (-len(scaled) % span)])
        height, width = frames.shape[1:3]
        cut = filled.reshape(1, -1, 3 * span, height, width)
        return {"pixel_values_videos": self.torch.tensor(cut)}

    def sound(self, frames: int) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Mel frames, the last one silent, and as the reference takes them."""
        mel = random_tensor("mel", (frames, self.config.sound.num_mel_bins))
        mel[-1] = 0
        return mel, self.heard(mel)

    def heard(self, mel: NDArray[np.float32]) -> dict[str, Any]:
        """Mel frames as the reference takes them, the last one masked."""
        return {
            "input_features": self.torch.tensor(mel)[None],
            "input_features_mask": self.torch.arange(len(mel))[None] < len(mel) - 1,
        }

    def mixed_logits(self, ids: Sequence[int], items: Sequence[MediaItem]) -> NDArray[np.float32]:
        """The reference's logits `[T, V]` of a prompt with pictures, videos and sounds.

        It takes no pictures beside a video, as both have the same soft tokens; but it takes what
        its tower made of them, in their order.
        """
        seen: list[Any] = []
        given: dict[str, Any] = {}
        with self.torch.no_grad():
            for item in items:
                arrays = item.arrays
                if item.modality == "audio":
                    given |= self.heard(arrays["mel"])
                    continue
                frames, scale, shift = (arrays[name] for name in ("frames", "scale", "shift"))
                frames = frames.astype(np.float32)
                if item.modality == "image":
                    found = self.reference.get_image_features(
                        **self.picture(frames[0], scale, shift)
                    )
                else:
                    found = self.reference.get_video_features(**self.film(frames, scale, shift))
                seen += found.pooler_output
            both = SimpleNamespace(pooler_output=seen)
            return (
                self.reference(
                    self.torch.tensor([list(ids)]), mm_encoder_outputs={"image": both}, **given
                )
                .logits[0]
                .numpy()
            )


@pytest.fixture(scope="module", params=list(TABLE))
def side(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Side:
    return Side(TABLE[request.param].config, tmp_path_factory.mktemp("media") / "tiny")


@pytest.mark.parametrize(("height", "width"), [(24, 40), (96, 16), (8, 8), (72, 72), (40, 64)])
def test_features_of_a_picture_are_the_references(side: Side, height: int, width: int) -> None:
    picture = pixels(1, height, width)
    with side.torch.no_grad():
        expected = side.reference.get_image_features(**side.picture(picture[0]))
    assert_close(side.features("image", picture), expected.pooler_output[0].numpy())


@pytest.mark.parametrize("count", [1, 5, 6])
def test_features_of_a_video_are_the_references(side: Side, count: int) -> None:
    frames = pixels(count, 24, 40)
    with side.torch.no_grad():
        expected = side.reference.get_video_features(**side.film(frames))
    assert_close(side.features("video", frames), expected.pooler_output[0].numpy())


# 9, 17 and 41: what comes of the silent frame is masked. 2600: scores are computed in parts.
@pytest.mark.parametrize("frames", [3, 8, 9, 17, 24, 41, 2600])
def test_features_of_a_sound_are_the_references(side: Side, frames: int) -> None:
    if side.config.sound is None:
        pytest.skip("hears nothing")
    mel, given = side.sound(frames)
    with side.torch.no_grad():
        expected = side.reference.get_audio_features(**given).pooler_output.numpy()
    assert_close(side.features("audio", mel), expected)


@pytest.mark.parametrize("modality", ["image", "video"])
def test_logits_of_a_prompt_with_media_are_the_references(side: Side, modality: str) -> None:
    if modality == "image":
        picture = pixels(1, 24, 40)
        seen, given = side.features("image", picture), side.picture(picture[0])
    else:
        frames = pixels(5, 16, 24)
        seen, given = side.features("video", frames), side.film(frames)
    soft = {IMAGE: seen}
    words = prompt_ids(30)
    ids = [*words[:7], *[IMAGE] * len(seen), *words[7:20]]
    if side.config.sound is not None:
        mel, heard = side.sound(61)
        soft[SOUND] = side.features("audio", mel)
        ids += [SOUND] * len(soft[SOUND])
        given |= heard
    ids += words[20:]
    with side.torch.no_grad():
        expected = side.reference(side.torch.tensor([ids]), **given).logits[0].numpy()
    assert_close(logits(side.forward, ids, soft), expected)


def logits(
    forward: Forward, ids: list[int], soft: Mapping[int, NDArray[np.float32]]
) -> NDArray[np.float32]:
    """The logits of all positions, features in the place of soft tokens."""
    model = forward.model
    layers = Allocation(tuple(model.cache_kinds()), mx.float32).layers()
    step = Step(
        ids=mx.array([ids]),
        positions=mx.arange(len(ids), dtype=mx.int32)[None],
        extents=(len(ids),),
    )
    hidden = np.array(model.embed(step))
    for token, features in soft.items():
        hidden[0, np.array(ids) == token] = features
    return np.array(model.logits(model(mx.array(hidden), step, layers.stores))[0])


@pytest.fixture(scope="module")
def mixed(side: Side) -> Iterator[Mixed]:
    with beside(side.folder, side.mixed_logits) as both:
        yield both


class TestMixedPrompt(MediaParity):
    pass


# Sizes. Modules that import torchvision cannot be imported without it: their functions are taken
# out of the source.


def taken(module: str, name: str) -> Callable[..., Any]:
    """A function, or a method, of a module of the reference that is not imported."""
    found = importlib.util.find_spec("transformers.models.nemotron_h_omni")
    assert found is not None
    assert found.submodule_search_locations is not None
    path = Path(found.submodule_search_locations[0]) / f"{module}.py"
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            scope: dict[str, Any] = {"math": math}
            exec(compile(ast.Module([node], []), str(path), "exec"), scope)
            return scope[name]
    raise AssertionError(f"{module} has no {name}")


@dataclass
class Picture:
    size: tuple[int, int]

    def pixels(self) -> NDArray[np.uint8]:
        """Waves, with edges that ring under a wrong filter."""
        width, height = self.size
        y, x = np.mgrid[:height, :width]
        waves = [np.sin(x / (3 + c) + y / (5 - c)) for c in range(3)]
        picture = 127.5 + 100 * np.stack(waves, axis=-1)
        picture[height // 3 : height // 2, width // 4 : width // 2] = 255
        return picture.astype(np.uint8)


def film(size: tuple[int, int], count: int, fps: float | None) -> VideoClip:
    picture = Picture(size).pixels()
    return Footage(count, size, fps, draw=lambda index: picture // (1 + index % 3)).clip


def random_sizes(seed: int) -> list[list[int]]:
    generator = np.random.default_rng(seed)
    return np.exp(generator.uniform(1, np.log(9000), (700, 2))).astype(int).tolist()


def image_reader(**changes: Any) -> ImageReader:
    return ImageReader(ImageSettings(**changes), 16)


@pytest.mark.parametrize("budget", [(1024, 13312), (64, 700), (64, 64), (1, 5000)])
def test_pictures_get_the_references_sizes(budget: tuple[int, int]) -> None:
    grid_size = taken("image_processing_nemotron_h_omni", "get_patch_grid_size")
    least, most = budget
    reader = image_reader(min_num_patches=least, max_num_patches=most)
    compared = 0
    for width, height in random_sizes(0):
        picture: Any = Picture((width, height))
        try:
            rows, columns = grid_size(height, width, 16, 2, least, most)
        except ZeroDivisionError:
            rows = columns = 0
        if not rows * columns:
            with pytest.raises(ValueError, match="shorter side"):
                reader.plan(picture, MediaRequest())
            continue
        plan = reader.plan(picture, MediaRequest())
        assert plan.runs[0].grid == (rows // 2, columns // 2)
        assert plan.count == rows * columns // 4
        compared += 1
    assert compared > 500


def test_frames_get_the_references_sizes() -> None:
    target_patches = taken("video_processing_nemotron_h_omni", "_compute_target_patches")
    for target in (1024, 100, 4):
        for square in (False, True):
            them = SimpleNamespace(
                video_target_num_patches=target,
                video_maintain_aspect_ratio=not square,
                _downsample_factor=2,
            )
            for width, height in random_sizes(1):
                columns, rows = target_patches(them, height, width)
                assert frame_grid(width, height, target=target, square=square) == (rows, columns)


def test_videos_get_the_references_frames_and_words() -> None:
    from transformers.models.nemotron_h_omni.processing_nemotron_h_omni import (
        NemotronH_Omni_Reasoning_V3Processor,
    )
    from transformers.video_utils import default_sample_indices_fn

    generator = np.random.default_rng(2)
    for _ in range(500):
        total = int(np.exp(generator.uniform(0, np.log(3000))))
        fps = [12.5, 24.0, 25.0, 29.97, 30.0, 60.0, 1.5, None][int(generator.integers(8))]
        asked = {"fps": 2.0} if fps else {"num_frames": min(total, 9)}
        span = int(generator.integers(2, 4))
        clip = film((200, 100), total, fps)
        reader = VideoReader(VideoSettings(**asked), 16, span)  # pyright: ignore[reportArgumentType]
        plan = reader.plan(clip, MediaRequest(max_frames=10000))
        metadata: Any = SimpleNamespace(total_num_frames=total, fps=fps)
        indices = default_sample_indices_fn(metadata, **asked) if _fits(asked, total, fps) else None
        if indices is None:
            continue
        layout: Any = plan.layout
        assert list(layout.indices) == indices.tolist()
        metadata.frames_indices = indices
        them: Any = SimpleNamespace(
            image_start_token="<img>",
            image_end_token="</img>",
            image_token="*",
            video_temporal_patch_dim=span,
            video_processor=SimpleNamespace(patch_size=16, downsample_ratio=0.5),
        )
        shape = (1, -(-len(indices) // span), 3 * span, layout.height, layout.width)
        said = NemotronH_Omni_Reasoning_V3Processor.replace_video_token(
            them,
            {
                "num_frames": [len(indices)],
                "video_metadata": [metadata],
                "pixel_values_videos": np.broadcast_to(np.float32(0), shape),
            },
            0,
        )
        ours = "".join(
            "*" * piece.count if isinstance(piece, Soft) else piece for piece in plan.pieces
        )
        assert ours == said


def _fits(asked: Mapping[str, float], total: int, fps: float | None) -> bool:
    """Whether the reference does not refuse to look at more frames than there are."""
    return not fps or max(1, int(total / fps * asked["fps"])) <= total


def test_sounds_get_the_references_counts() -> None:
    from transformers.models.nemotron_h_omni.processing_nemotron_h_omni import (
        NemotronH_Omni_Reasoning_V3Processor,
    )

    them: Any = SimpleNamespace(audio_hop_length=160, audio_subsampling_factor=8)
    reader = AudioReader(MelSettings(), 128, 8)
    generator = np.random.default_rng(3)
    for samples in np.exp(generator.uniform(np.log(320), np.log(2e7), 500)).astype(int).tolist():
        count = NemotronH_Omni_Reasoning_V3Processor._estimate_audio_num_embeddings(them, samples)
        clip: Any = SimpleNamespace(seconds=samples / 16000)
        plan = reader.plan(clip, MediaRequest())
        assert plan.count == count
        assert plan.layout == samples


# Contents.


def interpolated(picture: NDArray[Any], height: int, width: int) -> NDArray[np.float32]:
    """What both processors of the reference do to a picture `[H, W, 3]`."""
    import torch

    planes = torch.tensor(picture, dtype=torch.float32).permute(2, 0, 1)[None]
    out = torch.nn.functional.interpolate(
        planes, size=(height, width), mode="bicubic", align_corners=False, antialias=True
    )
    return out[0].permute(1, 2, 0).numpy()


SIZES = [(640, 480), (33, 47), (301, 31), (31, 301), (100, 100), (257, 255), (777, 333),
         (9, 150), (512, 512), (1023, 77)]  # fmt: skip


@pytest.mark.parametrize("size", SIZES)
def test_pixels_are_the_references(size: tuple[int, int]) -> None:
    from transformers.utils.constants import OPENAI_CLIP_MEAN, OPENAI_CLIP_STD

    picture: Any = Picture(size)
    reader = image_reader()
    plan = reader.plan(picture, MediaRequest())
    arrays = reader.prepare(picture, plan).arrays
    found = arrays["frames"][0].astype(np.float32) * arrays["scale"] + arrays["shift"]
    layout: Any = plan.layout
    theirs = interpolated(picture.pixels(), layout.height, layout.width)
    expected = (theirs / 255 - np.array(OPENAI_CLIP_MEAN)) / np.array(OPENAI_CLIP_STD)
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() * min(OPENAI_CLIP_STD) <= 0.15 / 255
    if theirs.max() > 256:
        assert arrays["frames"].max() > 256  # an overshoot is kept


def test_frames_are_the_references() -> None:
    clip = film((90, 60), 7, 4.0)
    reader = VideoReader(VideoSettings(), 16, 2)
    plan = reader.plan(clip, MediaRequest())
    layout: Any = plan.layout
    assert layout.indices == (0, 2, 4)
    frames = reader.prepare(clip, plan).arrays["frames"]
    for found, frame in zip(frames, clip.frames(layout.indices), strict=True):
        expected = interpolated(frame, layout.height, layout.width)
        assert np.abs(found.astype(np.float32) - expected).max() <= 0.15


@pytest.mark.parametrize("samples", [320, 401, 16000, 16001, 16159, 47999])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"sampling_rate": 8000, "hop_length": 80, "n_fft": 256, "win_length": 201,
         "preemphasis": 0.5},
    ],
)  # fmt: skip
def test_spectrograms_are_the_references(samples: int, changes: dict[str, Any]) -> None:
    from transformers.models.parakeet.feature_extraction_parakeet import ParakeetFeatureExtractor

    # With some noise: the reference's transform is a float32, and near silence is not exact.
    sweep = np.sin(np.arange(samples) ** 1.5 / 500)
    wave = (0.3 * sweep + 0.05 * random_tensor("noise", (samples, 1))[:, 0]).astype(np.float32)
    extractor = ParakeetFeatureExtractor(feature_size=80, **changes)
    theirs = extractor([wave], sampling_rate=extractor.sampling_rate, return_tensors="np")
    ours = MelFrames(MelSettings(**changes), 80)(wave)
    expected = np.asarray(theirs["input_features"][0])
    assert ours.shape == expected.shape
    assert np.abs(ours - expected).max() < 1e-4
    heard = np.asarray(theirs["attention_mask"][0])
    assert heard.sum() == len(ours) - 1
    assert (ours[-1] == 0).all()
