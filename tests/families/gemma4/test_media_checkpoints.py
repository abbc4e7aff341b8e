"""Towers are filled from files of every layout, and are not there where a file has none."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
import pytest

from phyla.checkpoint import open_checkpoint
from phyla.errors import CheckpointError, ConfigError
from phyla.testing import (
    Forward,
    prompt_ids,
    random_tensor,
    read_tiny,
    write_checkpoint,
    write_files,
)
from phyla.testing.footage import Footage
from phyla_families.gemma4.config import Config
from phyla_families.gemma4.media import media

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from phyla.checkpoint import Checkpoint
    from phyla.family import MediaReaders
    from phyla.modality import Modality

Tensors = dict[str, mx.array]

TABLE = read_tiny(Path(__file__).with_name("media_tiny.json"))
TOWERS, UNBOUND, FREE = (TABLE[name].config for name in TABLE)
PROMPT = prompt_ids(20)
MEDIA = re.compile(r"(vision|audio)_|embed_(vision|audio)\.")
EMBEDDING = re.compile(r"vision_embedder\.(.*)")


def text(tensors: Tensors, prefix: str) -> Tensors:
    return {f"{prefix}{name}": each for name, each in tensors.items() if not MEDIA.match(name)}


def others(tensors: Tensors) -> Tensors:
    return {name: each for name, each in tensors.items() if MEDIA.match(name)}


def published(tensors: Tensors) -> Tensors:
    """Transformers' names; channels of convolutions before their extents."""
    renamed = text(tensors, "model.language_model.")
    for name, each in others(tensors).items():
        first = "subsample" in name and each.ndim == 4
        axes = (0, 3, 1, 2) if first else (0, 2, 1) if "depthwise" in name else None
        renamed[f"model.{name}"] = each if axes is None else each.transpose(axes)
    return renamed


def converted(tensors: Tensors) -> Tensors:
    return {**text(tensors, "language_model.model."), **others(tensors)}


def in_memory(tensors: Tensors) -> Tensors:
    """The encoder-free model as transformers has it in memory, and some files have it."""
    renamed = text(tensors, "model.language_model.")
    for name, each in others(tensors).items():
        inner = name.replace("embed_vision.", "embed_vision.multimodal_embedder.")
        renamed["model." + EMBEDDING.sub(r"embed_vision.\1", inner)] = each
    return renamed


def text_alone(tensors: Tensors) -> Tensors:
    return text(tensors, "language_model.model.")


def with_leftovers(tensors: Tensors) -> Tensors:
    """A conversion that dropped the towers and forgot the projectors."""
    kept = {name: each for name, each in others(tensors).items() if "embed_" in name[:6]}
    return {**text_alone(tensors), **kept}


def held(folder: Path) -> Tensors:
    tensors = mx.load(str(folder / "model.safetensors"))
    assert isinstance(tensors, dict)
    return {
        # Bounds drawn at random lie around one, where the lower may be above the upper.
        name: -3 * each if name.endswith("_min") else 3 * each if name.endswith("_max") else each
        for name, each in tensors.items()
    }


@pytest.fixture(scope="module", params=list(TABLE))
def config(request: pytest.FixtureRequest) -> Mapping[str, Any]:
    return TABLE[request.param].config


@pytest.fixture(scope="module")
def tensors(config: Mapping[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Tensors:
    return held(write_checkpoint(tmp_path_factory.mktemp("own") / "tiny", config))


@pytest.fixture(scope="module")
def forward(
    config: Mapping[str, Any], tensors: Tensors, tmp_path_factory: pytest.TempPathFactory
) -> Forward:
    return Forward(write_files(tmp_path_factory.mktemp("bounded") / "tiny", config, tensors))


def pixels(count: int = 1, height: int = 24, width: int = 36) -> NDArray[np.uint8]:
    noise = random_tensor("pixels", (count, height, width, 3))
    return np.clip(128 + 60 * noise, 0, 255).astype(np.uint8)


def sound(config: Mapping[str, Any], frames: int = 80) -> NDArray[np.float32]:
    audio = config["audio_config"]
    return random_tensor("sound", (frames, audio.get("audio_embed_dim", 128)))


def features(forward: Forward, modality: Modality, array: NDArray[Any]) -> NDArray[np.float32]:
    name = "frames" if modality == "audio" else "pixels"
    return np.array(forward.model.media_features(modality, {name: mx.array(array)}).hidden)


@pytest.mark.parametrize("layout", [published, converted, in_memory])
def test_every_layout_gives_the_same(
    layout: Callable[[Tensors], Tensors],
    config: Mapping[str, Any],
    tensors: Tensors,
    forward: Forward,
    tmp_path: Path,
) -> None:
    if layout is in_memory and config is not FREE:
        pytest.skip("only the encoder-free model has other names in memory")
    again = Forward(write_files(tmp_path / "again", config, layout(dict(tensors))))
    expected = features(forward, "image", pixels())
    np.testing.assert_array_equal(features(again, "image", pixels()), expected)
    np.testing.assert_array_equal(again.logits(PROMPT), forward.logits(PROMPT))
    if "audio_config" in config:
        heard = sound(config)
        np.testing.assert_array_equal(
            features(again, "audio", heard), features(forward, "audio", heard)
        )


def readers(folder: Path) -> MediaReaders:
    checkpoint = open_checkpoint(folder, offline=True)
    return media(Config.read(checkpoint.config).settle(checkpoint), checkpoint)


@pytest.mark.parametrize("layout", [text_alone, with_leftovers])
def test_a_file_without_towers_is_read_as_text(
    layout: Callable[[Tensors], Tensors],
    config: Mapping[str, Any],
    tensors: Tensors,
    forward: Forward,
    tmp_path: Path,
) -> None:
    if layout is with_leftovers and config is FREE:
        pytest.skip("there a projector is all that audio needs")
    folder = write_files(tmp_path / "again", config, layout(tensors))
    again, found = Forward(folder), readers(folder)
    assert (found.image, found.audio, found.video) == (None, None, None)
    np.testing.assert_array_equal(again.logits(PROMPT), forward.logits(PROMPT))
    for modality in ("image", "audio", "video"):
        with pytest.raises(NotImplementedError, match=modality):
            features(again, modality, pixels())


def test_a_file_reads_what_it_has_towers_for(
    config: Mapping[str, Any], tensors: Tensors, tmp_path: Path
) -> None:
    found = readers(write_files(tmp_path / "again", config, published(tensors)))
    assert found.image is not None
    assert found.video is not None
    assert (found.audio is None) == ("audio_config" not in config)
    assert (found.image.token, found.video.token) == ("<|image|>", "<|video|>")


def test_a_tower_that_is_not_whole_is_named(
    config: Mapping[str, Any], tensors: Tensors, tmp_path: Path
) -> None:
    found = published(tensors)
    gone = next(name for name in found if "patch_dense.bias" in name or "o_proj.linear" in name)
    del found[gone]
    with pytest.raises(CheckpointError, match=gone.removeprefix("model.")):
        Forward(write_files(tmp_path / "again", config, found))


def test_frames_of_a_video_are_seen_one_by_one(forward: Forward) -> None:
    frames = pixels(20, 12, 24)
    apart = [features(forward, "image", frame[None]) for frame in frames]
    together = features(forward, "video", frames)
    np.testing.assert_allclose(together, np.concatenate(apart), rtol=1e-4, atol=1e-5)


def test_what_follows_changes_nothing_of_what_was_heard(
    config: Mapping[str, Any], forward: Forward
) -> None:
    if "audio_config" not in config:
        pytest.skip("reads no audio")
    heard = sound(config)
    whole, begun = features(forward, "audio", heard), features(forward, "audio", heard[:60])
    # The last token of the tower sees a frame beyond its own.
    np.testing.assert_allclose(whole[: len(begun) - 1], begun[:-1], rtol=1e-4, atol=1e-5)
    assert np.abs(whole[:-1] - whole[1:]).max(axis=1).min() > 1e-3


def test_features_have_the_type_of_embeddings(
    config: Mapping[str, Any], tensors: Tensors, forward: Forward, tmp_path: Path
) -> None:
    half = {name: each.astype(mx.float16) for name, each in published(tensors).items()}
    narrow = Forward(write_files(tmp_path / "half", config, half), dtype="float16")
    seen = narrow.model.media_features("image", {"pixels": mx.array(pixels())}).hidden
    assert seen.dtype == mx.float16
    expected = features(forward, "image", pixels())
    assert np.abs(np.array(seen) - expected).max() < 0.05 * np.abs(expected).max()


def test_a_smooth_patch_is_normed_exactly(tmp_path: Path) -> None:
    forward = Forward(write_checkpoint(tmp_path / "tiny", FREE))
    model: Any = forward.model
    norm = model.vision_embedder.patch_ln1
    patch = (200 + np.arange(432) % 2).astype(np.uint8)[None]
    values = patch.astype(np.float64) / 255
    expected = (values - values.mean()) / np.sqrt(values.var() + 1e-5)
    expected = expected * np.array(norm.weight) + np.array(norm.bias)
    np.testing.assert_allclose(np.array(norm(mx.array(patch))), expected, rtol=1e-5, atol=1e-6)


def test_quantized_towers_are_near_the_weights_they_were_made_from(tmp_path: Path) -> None:
    wide = {
        **TOWERS,
        "vision_config": {
            **TOWERS["vision_config"], "hidden_size": 64, "intermediate_size": 128,
            "num_attention_heads": 4, "num_key_value_heads": 4, "use_clipped_linears": False,
        },
        "audio_config": {
            **TOWERS["audio_config"], "hidden_size": 64, "output_proj_dims": 64,
            "use_clipped_linears": False,
        },
    }  # fmt: skip
    convolution = "audio_tower.subsample_conv_projection.layer1.conv"
    quantize = {"bits": 8, "group_size": 64, convolution: False}
    plain = Forward(write_checkpoint(tmp_path / "plain", wide))
    packed = Forward(write_checkpoint(tmp_path / "packed", wide, quantize=quantize), dtype="stored")
    model: Any = packed.model
    assert "scales" in model.embed_audio.embedding_projection
    assert "scales" in model.vision_tower.encoder.layers[0].mlp.up_proj.linear
    cases: tuple[tuple[Modality, NDArray[Any]], ...] = (("image", pixels()), ("audio", sound(wide)))
    for modality, given in cases:
        found, expected = (features(each, modality, given) for each in (packed, plain))
        assert np.abs(found - expected).max() < 0.1 * np.abs(expected).max()


def settings(config: Mapping[str, Any], **files: Any) -> MediaReaders:
    """The readers of an unsettled config with these preprocessor files."""
    checkpoint = dataclasses.replace(_checkpoint(), preprocessing=files)
    return media(Config.read(config), checkpoint)


def _checkpoint() -> Checkpoint:
    from phyla.checkpoint.checkpoint import Checkpoint, TokenizerData

    return Checkpoint(
        path=Path("tiny"), name="tiny", format="safetensors", config={}, generation_config={},
        tensors={}, tokenizer=lambda: TokenizerData(json="{}"), chat_templates={},
        quantization=None, overrides={}, load=dict,
    )  # fmt: skip


def test_settings_are_read_from_either_file() -> None:
    from phyla.family import MediaRequest

    class Square:
        size = (1000, 1000)

    square: Any = Square()
    image = {"max_soft_tokens": 560, "patch_size": 4, "pooling_kernel_size": 3, "resample": 2}
    for files in (
        {"processor_config.json": {"image_processor": image}},
        {"preprocessor_config.json": image},
        {"processor_config.json": {"image_processor": image}, "preprocessor_config.json": {}},
    ):
        found = settings(TOWERS, **files).image
        assert found is not None
        assert found.plan(square, MediaRequest()).count == 23 * 23
    usual = settings(TOWERS).image
    assert usual is not None
    assert usual.plan(square, MediaRequest()).count == 16 * 16


def test_settings_of_videos_are_read_from_either_file() -> None:
    from phyla.family import MediaRequest

    film = Footage(100, (1000, 1000), 10.0).clip
    for files in (
        {"processor_config.json": {"video_processor": {"num_frames": 3}}},
        {"video_preprocessor_config.json": {"num_frames": 3, "max_soft_tokens": 70}},
    ):
        found = settings(FREE, **files).video
        assert found is not None
        assert found.plan(film, MediaRequest()).count == 3 * 64


@pytest.mark.parametrize(
    ("config", "files", "words"),
    [
        (TOWERS, {"preprocessor_config.json": {"max_soft_tokens": 100}}, "max_soft_tokens"),
        (TOWERS, {"preprocessor_config.json": {"patch_size": 0}}, "patch_size"),
        (TOWERS, {"preprocessor_config.json": {"patch_size": 16}}, "patch_size.*should be 4"),
        (TOWERS, {"preprocessor_config.json": {"resample": "best"}}, "resample"),
        (
            TOWERS,
            {"preprocessor_config.json": {"do_normalize": True, "image_mean": [0.5, 0.5, 0.5]}},
            "image_mean",
        ),
        (TOWERS, {"processor_config.json": {"image_processor": [3]}}, "image_processor"),
        (
            FREE,
            {"processor_config.json": {"image_processor": {"pooling_kernel_size": 2}}},
            "image_processor.pooling_kernel_size",
        ),
        (TOWERS, {"video_preprocessor_config.json": {"num_frames": 0}}, "num_frames"),
        (
            TOWERS,
            {"processor_config.json": {"video_processor": {"fps": -1}}},
            "video_processor.fps",
        ),
        (TOWERS, {"preprocessor_config.json": {"feature_size": 64}}, "feature_size.*128"),
        (TOWERS, {"preprocessor_config.json": {"preemphasis": 0.97}}, "preemphasis"),
        (TOWERS, {"preprocessor_config.json": {"max_frequency": 9000.0}}, "max_frequency"),
        (TOWERS, {"preprocessor_config.json": {"hop_length_ms": 1e-9}}, "hop_length_ms"),
        (TOWERS, {"preprocessor_config.json": {"per_bin_mean": [0.0]}}, "per_bin_mean"),
        (TOWERS, {"preprocessor_config.json": {"per_bin_stddev": [0.0] * 128}}, "per_bin_stddev"),
        (FREE, {"preprocessor_config.json": {"audio_samples_per_token": 640}}, "should be 40"),
        (FREE, {"preprocessor_config.json": {"sampling_rate": 0}}, "sampling_rate"),
    ],
)
def test_settings_that_make_no_sense_are_named(
    config: Mapping[str, Any], files: dict[str, Any], words: str
) -> None:
    with pytest.raises(CheckpointError, match=words) as caught:
        settings(config, **files)
    assert caught.value.file in files
    assert caught.value.hint


@pytest.mark.parametrize(
    ("part", "changes", "words"),
    [
        ("vision_config", {"patch_size": 0}, "vision_config.patch_size"),
        ("vision_config", {"head_dim": 6}, "vision_config.head_dim"),
        ("vision_config", {"num_key_value_heads": 1}, "num_key_value_heads"),
        ("vision_config", {"hidden_activation": "relu"}, "vision_config.hidden_activation"),
        ("vision_config", {"rope_parameters": {"rope_theta": 0}}, "rope_theta"),
        ("audio_config", {"attention_context_right": 2}, "audio_config.attention_context_right"),
        ("audio_config", {"subsampling_conv_channels": [126, 8]}, "subsampling_conv_channels"),
        ("audio_config", {"subsampling_conv_channels": [128]}, "subsampling_conv_channels"),
        ("audio_config", {"num_attention_heads": 3}, "num_attention_heads"),
    ],
)
def test_a_tower_that_contradicts_itself_is_named(
    part: str, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        Config.read({**TOWERS, part: {**TOWERS[part], **changes}})


def test_a_tower_that_is_no_object_is_named() -> None:
    with pytest.raises(ConfigError, match="vision_config"):
        Config.read({**TOWERS, "vision_config": "large"})


def test_null_stands_for_a_modality_that_is_not_there() -> None:
    config = Config.read({**TOWERS, "vision_config": None, "audio_config": None})
    assert (config.vision, config.audio) == (None, None)
    assert Config.read({**TOWERS["text_config"], "vision_config": {}}).vision is None


def test_soft_tokens_that_a_config_leaves_out_are_the_published_ones() -> None:
    keys = ("image_token_id", "audio_token_id", "video_token_id")
    config = Config.read({key: value for key, value in TOWERS.items() if key not in keys})
    assert config.soft_tokens == (258880, 258884, 258881)
