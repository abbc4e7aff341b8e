"""How pictures are prepared, as the preprocessor files say it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from phyla.checkpoint import Checkpoint
from phyla.checkpoint.checkpoint import TensorInfo
from phyla.errors import CheckpointError, ConfigError
from phyla.testing import read_tiny
from phyla_families.lfm2_vl.config import Config
from phyla_families.lfm2_vl.image_settings import ImageSettings, read_settings
from phyla_families.lfm2_vl.media import media

TINY = read_tiny(Path(__file__).with_name("tiny.json"))["text of a vision model"].config
HUGGING_FACE = "model.vision_tower.vision_model.embeddings.patch_embedding.weight"
CONVERSION = "language_model.model.embed_tokens.weight"
PREPROCESSOR, PROCESSOR = "preprocessor_config.json", "processor_config.json"


def checkpoint(files: dict[str, Any], *, tensors: tuple[str, ...] = (HUGGING_FACE,)) -> Checkpoint:
    return Checkpoint(
        path=Path("tiny"), name="tiny", format="safetensors", config=TINY, generation_config={},
        tensors={name: TensorInfo(name, (4, 4), "F32", 64, "") for name in tensors},
        tokenizer=pytest.fail, chat_templates={}, quantization=None, overrides={},
        load=pytest.fail, preprocessing=files,
    )  # fmt: skip


def settings(files: dict[str, Any], *, tensors: tuple[str, ...] = (HUGGING_FACE,)) -> ImageSettings:
    config = Config.read(TINY)
    assert config.vision_config is not None
    return read_settings(config, config.vision_config, checkpoint(files, tensors=tensors))


def test_without_files_the_classes_defaults_stand() -> None:
    found = settings({})
    assert (found.tile_size, found.min_tiles, found.max_tiles) == (512, 2, 10)
    assert (found.min_image_tokens, found.max_image_tokens, found.resample) == (64, 256, 2)
    assert found.splits
    assert found.use_thumbnail
    assert found.use_image_special_tokens
    assert found.affine.scale == (2 / 255,) * 3
    assert found.affine.shift == (-1, -1, -1)


def test_the_later_file_wins_and_neither_needs_every_key() -> None:
    files = {
        PREPROCESSOR: {"resample": 3, "max_tiles": 4, "use_thumbnail": None},
        PROCESSOR: {"max_tiles": 6, "processor_class": "Lfm2VlProcessor"},
    }
    found = settings(files)
    assert (found.resample, found.max_tiles, found.use_thumbnail) == (3, 6, True)


def test_keys_may_stand_under_the_image_processor() -> None:
    files = {
        PROCESSOR: {"image_processor": {"max_tiles": 6}, "use_image_special_tokens": False},
        PREPROCESSOR: {"max_tiles": 4},
    }
    found = settings(files)
    assert (found.max_tiles, found.use_image_special_tokens) == (6, False)


def test_keys_that_mislead_are_not_read() -> None:
    files = {PREPROCESSOR: {"do_resize": False, "max_num_patches": 256, "size": {"height": 1}}}
    assert settings(files) == settings({})


def test_normalization_is_told_as_one_step() -> None:
    files = {PREPROCESSOR: {"image_mean": [0, 0.2, 0.4], "image_std": [1, 0.5, 0.2]}}
    found = settings(files)
    assert found.affine.scale == pytest.approx((1 / 255, 2 / 255, 5 / 255))
    assert found.affine.shift == pytest.approx((0, -0.4, -2))
    plain = settings({PREPROCESSOR: {"do_normalize": False, "do_rescale": False}})
    assert (plain.affine.scale, plain.affine.shift) == ((1, 1, 1), (0, 0, 0))


def test_splitting_that_a_conversion_switched_off_is_on() -> None:
    files = {PREPROCESSOR: {"do_image_splitting": False, "use_thumbnail": False, "max_tiles": 1}}
    files[PREPROCESSOR] |= {"min_tiles": 1}
    converted = settings(files, tensors=(CONVERSION,))
    assert converted.splits
    assert converted.use_thumbnail
    assert (converted.min_tiles, converted.max_tiles) == (2, 10)
    assert not settings(files).splits


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ({"tile_size": "large"}, "tile_size"),
        ({"tile_size": 500}, "tile_size"),
        ({"encoder_patch_size": 0}, "encoder_patch_size"),
        ({"encoder_patch_size": 14, "tile_size": 448}, "encoder_patch_size"),
        ({"downsample_factor": 4}, "downsample_factor"),
        ({"min_tiles": 5, "max_tiles": 3}, "min_tiles"),
        ({"max_tiles": 12}, "max_tiles"),
        ({"min_image_tokens": 512}, "min_image_tokens"),
        ({"max_pixels_tolerance": -1}, "max_pixels_tolerance"),
        ({"resample": "cubic"}, "resample"),
        ({"resample": 9}, "resample"),
        ({"image_mean": [0.5, 0.5]}, "image_mean"),
        ({"image_std": [0.5, 0.5, 0]}, "image_std"),
        ({"rescale_factor": 0}, "rescale_factor"),
        ({"do_image_splitting": "sometimes"}, "do_image_splitting"),
    ],
)
@pytest.mark.parametrize("file", [PREPROCESSOR, PROCESSOR])
def test_a_wrong_setting_is_named_with_its_file(keys: dict[str, Any], key: str, file: str) -> None:
    with pytest.raises(CheckpointError, match=key) as caught:
        settings({file: keys})
    assert caught.value.file == file


@pytest.mark.parametrize("kind", ["lfm2_vl", "lfm2-vl"])
def test_there_is_a_reader_where_the_file_holds_a_tower(kind: str) -> None:
    config = Config.read({**TINY, "model_type": kind})
    whole = checkpoint({})
    readers = media(config.settle(whole), whole)
    assert readers.image is not None
    assert (readers.image.token, readers.image.before, readers.image.after) == ("<image>", "", "")
    assert readers.audio is readers.video is None
    text = dataclasses.replace(whole, tensors={})
    assert media(config.settle(text), text).image is None


def test_there_is_no_reader_beside_a_model_of_text() -> None:
    table = read_tiny(Path(__file__).with_name("tiny.json"))
    whole = checkpoint({})
    for name in ("tied", "experts"):
        config = Config.read(table[name].config).settle(whole)
        assert media(config, whole).image is None


@pytest.mark.parametrize(
    ("keys", "word"),
    [
        ({"vision_config": {"hidden_size": 30, "num_attention_heads": 4}}, "hidden_size"),
        ({"vision_config": {"num_patches": 200}}, "num_patches"),
        ({"vision_config": {"hidden_act": "relu"}}, "hidden_act"),
        ({"vision_config": {"model_type": "clip_vision_model"}}, "model_type"),
        ({"vision_config": {"patch_size": 0}}, "patch_size"),
        ({"vision_config": 4}, "vision_config"),
        ({"projector_hidden_act": "silu"}, "projector_hidden_act"),
        ({"downsample_factor": 0}, "downsample_factor"),
    ],
)
def test_a_wrong_key_of_the_towers_config_is_named(keys: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        Config.read({**TINY, **keys})


def test_what_a_towers_config_leaves_out_is_as_the_class_has_it() -> None:
    config = Config.read({**TINY, "vision_config": {"vision_use_head": False, "patch_size": None}})
    assert config.vision_config is not None
    assert config.vision_config.hidden_size == 768
    assert config.vision_config.patch_size == 16
