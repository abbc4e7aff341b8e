"""Towers, pixels, spectrograms and whole prompts with media equal those of transformers."""

from __future__ import annotations

import math
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
import pytest

from phyla.engine.layers import Allocation
from phyla.family import MediaRequest, Step
from phyla.testing import MARKS, Forward, assert_close, prompt_ids, random_tensor, read_tiny
from phyla.testing.media_parity import (
    MediaParity,
    Mixed,
    beside,
    resize_rows_first,
    show_media,
)
from phyla.testing.reference import write_reference_checkpoint
from phyla.testing.sight import template
from phyla_families.gemma4.audio_reader import MelReader, SampleReader
from phyla_families.gemma4.image_reader import ImageReader, Look
from phyla_families.gemma4.mel import MelFrames
from phyla_families.gemma4.settings import MelSettings
from phyla_families.gemma4.sizes import BUDGETS, soft_grid

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from phyla.engine.media import MediaItem

pytestmark = [pytest.mark.parity, pytest.mark.usefixtures("one_torch_thread")]

TABLE = read_tiny(Path(__file__).with_name("media_tiny.json"))
SIDE, PATCH = 12, 4
BOUNDS = {"input_min": -3.0, "input_max": 2.5, "output_min": -2.0, "output_max": 3.0}
KINDS = {263: 1, 265: 2, 264: 3}  # the reference's numbers of image, video and audio tokens
# In the order of the ids in media_tiny.json.
PLACES = (
    "<|image|>", "<|audio|>", "<|video|>", "<|image>", "<image|>", "<|audio>", "<audio|>",
)  # fmt: skip
FRAMES = 150  # of audio: a few times what one sees of others


def pixels(count: int, height: int, width: int) -> NDArray[np.uint8]:
    """Pictures of noise on a slope."""
    noise = random_tensor("pixels", (count, height, width, 3))
    slope = np.linspace(0, 1, width)[:, None]
    return np.clip(255 * (0.3 + 0.4 * slope + 0.1 * noise), 0, 255).astype(np.uint8)


class Side:
    """One tiny model on both sides."""

    def __init__(self, config: Mapping[str, Any], folder: Path) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        write_reference_checkpoint(folder, config)
        path = str(folder / "model.safetensors")
        tensors = mx.load(path)
        assert isinstance(tensors, dict)
        for name in tensors:
            bound = BOUNDS.get(name.rpartition(".")[2])
            if bound is not None:
                # Each layer its own, and so tight that a few values of a hundred pass them.
                own = random_tensor(name, (2, 2))[0, 0]
                tensors[name] = mx.array(bound * (1 + 0.2 * float(own)))
        mx.save_safetensors(path, tensors, metadata={"format": "pt"})
        show_media(
            folder,
            chat_template=template(image="<|image|>", audio="<|audio|>", video="<|video|>"),
            marks=(*MARKS, *PLACES),
            preprocessing={"preprocessor_config.json": {"max_soft_tokens": 70}},
        )
        self.folder = folder
        self.config = config
        self.unified = config["model_type"] == "gemma4_unified"
        self.forward = Forward(folder)
        self.torch = torch
        self.reference: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager"
        ).eval()

    def patches(self, images: NDArray[np.uint8], padded: int = 0) -> tuple[Any, Any]:
        """Pictures as the reference's processors hand them over, with patches of nothing behind."""
        side = SIDE if self.unified else PATCH
        count, height, width, _ = images.shape
        rows, columns = height // side, width // side
        cut = images.reshape(count, rows, side, columns, side, 3).transpose(0, 1, 3, 2, 4, 5)
        values = self.torch.tensor(cut.reshape(count, rows * columns, -1)) / 255
        places = np.stack(np.meshgrid(np.arange(columns), np.arange(rows)), axis=-1)
        at = self.torch.tensor(places.reshape(1, -1, 2)).repeat(count, 1, 1)
        pad = self.torch.nn.functional.pad
        return pad(values, (0, 0, 0, padded)), pad(at, (0, 0, 0, padded), value=-1)

    def logits(self, ids: Sequence[int], given: Mapping[str, Any]) -> NDArray[np.float32]:
        """The reference's logits `[T, V]`, of media as its processors hand them over."""
        torch = self.torch
        given = {**given, "mm_token_type_ids": torch.tensor([[KINDS.get(t, 0) for t in ids]])}
        if self.unified:  # see phyla_families.gemma4.config.BLOCKS_IN
            given["attention_mask"] = self.reference.create_masks_for_generate(
                config=self.reference.config,
                inputs_embeds=torch.zeros(1, len(ids), 64),
                attention_mask=None,
                cache=None,
                position_ids=torch.arange(len(ids))[None],
                mm_token_type_ids=given["mm_token_type_ids"],
            )
        with torch.no_grad():
            return self.reference(torch.tensor([list(ids)]), **given).logits[0].numpy()

    @cached_property
    def audio(self) -> NDArray[np.float32]:
        width = self.config["audio_config"]["audio_embed_dim"] if self.unified else 128
        return random_tensor("audio", (FRAMES, width))

    def features(self, modality: Any, array: NDArray[Any]) -> NDArray[np.float32]:
        name = "frames" if modality == "audio" else "pixels"
        return np.array(self.forward.model.media_features(modality, {name: mx.array(array)}).hidden)

    def heard(self, frames: NDArray[np.float32], padded: int = 0) -> NDArray[np.float32]:
        """The reference's features of audio, with frames of nothing behind."""
        given = self.torch.tensor(np.pad(frames, ((0, padded), (0, 0))))[None]
        mask = self.torch.arange(given.shape[1])[None] < len(frames)
        with self.torch.no_grad():
            found = self.reference.model.get_audio_features(given, mask)
        return found.pooler_output[found.attention_mask].numpy()


@pytest.fixture(scope="module", params=list(TABLE))
def side(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Side:
    return Side(TABLE[request.param].config, tmp_path_factory.mktemp("media") / "tiny")


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(("height", "width"), [(24, 36), (96, 24), (12, 12)])
def test_features_of_an_image_equal_the_references(
    side: Side, height: int, width: int, padded: bool
) -> None:
    images = pixels(1, height, width)
    values, at = side.patches(images, (4 if side.unified else 36) if padded else 0)
    with side.torch.no_grad():
        expected = side.reference.model.get_image_features(values, at).pooler_output[0].numpy()
    assert_close(side.features("image", images), expected)


def test_features_of_a_video_equal_the_references(side: Side) -> None:
    frames = pixels(3, 24, 36)
    values, at = side.patches(frames)
    with side.torch.no_grad():
        found = side.reference.model.get_video_features(
            values, at, num_frames_per_video=side.torch.tensor([3])
        )
    assert_close(side.features("video", frames), found.pooler_output[0].numpy())


@pytest.mark.parametrize("frames", [1, 4, 61, FRAMES])
def test_features_of_audio_equal_the_references(side: Side, frames: int) -> None:
    if side.config.get("audio_config") is None:
        pytest.skip("reads no audio")
    expected = side.heard(side.audio[:frames], padded=7)
    assert_close(side.features("audio", side.audio[:frames]), expected)


def test_logits_of_a_prompt_with_media_equal_the_references(side: Side) -> None:
    image, video = pixels(1, 36, 48), pixels(2, 24, 36)
    words = prompt_ids(20)
    blocks: list[tuple[int, int]] = []
    ids: list[int] = []
    soft: dict[int, NDArray[np.float32]] = {
        263: side.features("image", image),
        265: side.features("video", video),
    }
    ids += words[:5]
    for token, count in ((263, 12), (265, 6), (265, 6)):
        blocks.append((len(ids) + 1, len(ids) + 1 + count))
        ids += [266, *[token] * count, 267, *words[5:8]]
    torch = side.torch
    values, at = side.patches(image)
    frames, frames_at = side.patches(video)
    given: dict[str, Any] = {
        "pixel_values": values, "image_position_ids": at, "pixel_values_videos": frames,
        "video_position_ids": frames_at, "num_frames_per_video": torch.tensor([2]),
    }  # fmt: skip
    if side.config.get("audio_config") is not None:
        soft[264] = side.features("audio", side.audio[:61])
        ids += [268, *[264] * len(soft[264]), 269]
        given["input_features"] = torch.tensor(side.audio[:61])[None]
        given["input_features_mask"] = torch.ones(1, 61, dtype=torch.bool)
    ids += words[8:]
    assert_close(logits(side.forward, ids, soft, blocks), side.logits(ids, given))


def reference_inputs(side: Side, items: Sequence[MediaItem]) -> dict[str, Any]:
    """Two pictures, a video and perhaps a sound, as the reference's processors hand them over."""
    torch = side.torch
    pictures = [side.patches(item.arrays["pixels"]) for item in items if item.modality == "image"]
    longest = max(values.shape[1] for values, _ in pictures)
    (film,) = [item.arrays["pixels"] for item in items if item.modality == "video"]
    pad = torch.nn.functional.pad
    values, at = (
        torch.cat([pad(part, (0, 0, 0, longest - part.shape[1]), value=value) for part in parts])
        for parts, value in zip(zip(*pictures, strict=True), (0, -1), strict=True)
    )
    frames, frames_at = side.patches(film)
    given: dict[str, Any] = {
        "pixel_values": values, "image_position_ids": at, "pixel_values_videos": frames,
        "video_position_ids": frames_at, "num_frames_per_video": torch.tensor([len(film)]),
    }  # fmt: skip
    for item in items:
        if item.modality == "audio":
            heard = torch.tensor(item.arrays["frames"])[None]
            given["input_features"] = heard
            given["input_features_mask"] = torch.ones(heard.shape[:2], dtype=torch.bool)
    return given


@pytest.fixture(scope="module")
def mixed(side: Side) -> Iterator[Mixed]:
    def logits(ids: Sequence[int], items: Sequence[MediaItem]) -> NDArray[np.float32]:
        return side.logits(ids, reference_inputs(side, items))

    with beside(side.folder, logits) as both:
        yield both


class TestMixedPrompt(MediaParity):
    pass


def logits(
    forward: Forward,
    ids: list[int],
    soft: Mapping[int, NDArray[np.float32]],
    blocks: list[tuple[int, int]],
) -> NDArray[np.float32]:
    """The logits of all positions, features in the place of soft tokens."""
    model = forward.model
    layers = Allocation(tuple(model.cache_kinds()), mx.float32).layers()
    layers.begin(blocks)
    step = Step(
        ids=mx.array([ids]),
        positions=mx.arange(len(ids), dtype=mx.int32)[None],
        extents=(len(ids),),
    )
    hidden = np.array(model.embed(step))
    for token, features in soft.items():
        hidden[0, np.array(ids) == token] = features
    return np.array(model.logits(model(mx.array(hidden), step, layers.stores))[0])


def test_sizes_are_those_of_the_reference() -> None:
    from transformers.models.gemma4.image_processing_pil_gemma4 import (
        get_aspect_ratio_preserving_size,
    )

    random = np.random.default_rng(0)
    for width, height in random.integers(1, 5000, (500, 2)).tolist():
        for budget in BUDGETS:
            expected = get_aspect_ratio_preserving_size(height, width, 16, budget * 9, 3)
            rows, columns = soft_grid(width, height, budget=budget, side=48)
            assert (48 * rows, 48 * columns) == expected


class Picture:
    """An image that is there already."""

    def __init__(self, array: NDArray[np.uint8]) -> None:
        self.array = array
        self.size = (array.shape[1], array.shape[0])

    def pixels(self) -> NDArray[np.uint8]:
        return self.array


@pytest.mark.parametrize("budget", [70, 280])
@pytest.mark.parametrize(
    ("width", "height"),
    [(640, 480), (97, 61), (2, 5), (3, 200), (301, 299), (31, 700), (1000, 400), (768, 768)],
)
def test_pixels_are_those_of_the_reference(
    width: int, height: int, budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers.models.gemma4.image_processing_pil_gemma4 import Gemma4ImageProcessorPil

    array = pixels(1, height, width)[0]
    look = Look(side=48, longest=3000, budget=280, resample=3)
    reader, picture = ImageReader(look), Picture(array)
    plan = reader.plan(picture, MediaRequest(max_tokens=budget))  # pyright: ignore[reportArgumentType]
    ours = reader.prepare(picture, plan).arrays["pixels"][0]  # pyright: ignore[reportArgumentType]
    resize_rows_first(monkeypatch)
    theirs = Gemma4ImageProcessorPil(max_soft_tokens=budget)(array)
    assert theirs["num_soft_tokens_per_image"] == [plan.count]
    rows, columns = ours.shape[0] // 16, ours.shape[1] // 16
    cut = ours.reshape(rows, 16, columns, 16, 3).transpose(0, 2, 1, 3, 4).reshape(-1, 768)
    found = np.asarray(theirs["pixel_values"][0])[: rows * columns] * 255
    assert np.abs(found - cut).max() <= 2
    places = np.asarray(theirs["image_position_ids"][0])[: rows * columns]
    np.testing.assert_array_equal(places[:, 0], np.arange(rows * columns) % columns)


@pytest.mark.parametrize("samples", [161, 16000, 16001, 16160, 47999])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {
            "fft_overdrive": True, "frame_length_ms": 25.0, "min_frequency": 100.0,
            "max_frequency": 7000.0, "mel_floor": 1e-5, "input_scale_factor": 2.0,
            "per_bin_mean": [0.5] * 128, "per_bin_stddev": [2.0] * 128,
        },
    ],
)  # fmt: skip
def test_spectrograms_are_those_of_the_reference(samples: int, changes: dict[str, Any]) -> None:
    from transformers.models.gemma4.feature_extraction_gemma4 import Gemma4AudioFeatureExtractor

    # With some noise: the reference's transform is a float32, and what is nearly silent is not exact.
    sweep = np.sin(np.arange(samples) ** 1.5 / 500)
    wave = (0.3 * sweep + 0.05 * random_tensor("noise", (samples, 1))[:, 0]).astype(np.float32)
    theirs = Gemma4AudioFeatureExtractor(**changes)([wave])
    valid = np.asarray(theirs["input_features_mask"][0])
    ours = MelFrames(MelSettings(**changes))(wave)
    assert len(ours) == valid.sum()
    assert (
        len(ours) == 0 or np.abs(ours - np.asarray(theirs["input_features"][0])[valid]).max() < 1e-4
    )
    if not changes:
        assert len(ours) == (samples - 1) // 160


def test_counts_of_sounds_are_those_of_the_reference() -> None:
    from transformers.models.gemma4.processing_gemma4 import Gemma4Processor
    from transformers.models.gemma4_unified.processing_gemma4_unified import Gemma4UnifiedProcessor

    tower: Any = SimpleNamespace(
        feature_extractor=SimpleNamespace(frame_length=320, hop_length=160), audio_seq_length=750
    )
    free: Any = SimpleNamespace(feature_extractor=SimpleNamespace(audio_samples_per_token=640))
    readers = MelReader(MelSettings()), SampleReader(16000, 640)
    generator = np.random.default_rng(0)
    for samples in np.exp(generator.uniform(np.log(200), np.log(8e5), 500)).astype(int).tolist():
        clip: Any = SimpleNamespace(seconds=samples / 16000)
        wave = np.broadcast_to(np.float32(0), min(samples, 480_000))  # what extractors leave
        expected = (
            Gemma4Processor._compute_audio_num_tokens(tower, wave, 16000),
            Gemma4UnifiedProcessor._compute_audio_num_tokens(free, wave, 16000),
        )
        assert tuple(reader.plan(clip, MediaRequest()).count for reader in readers) == expected


def test_raw_frames_are_those_of_the_reference() -> None:
    from transformers.models.gemma4_unified.feature_extraction_gemma4_unified import (
        Gemma4UnifiedAudioFeatureExtractor,
    )

    reader = SampleReader(16000, 640)
    for samples in (1, 640, 641, 16000):
        wave = np.sin(np.arange(samples) / 7).astype(np.float32)
        theirs = np.asarray(Gemma4UnifiedAudioFeatureExtractor()(wave)["input_features"][0])
        np.testing.assert_array_equal(reader.frames(wave), theirs)
        assert reader.count(samples) == len(theirs) == math.ceil(samples / 640)
