"""Preprocessor files: which of them counts, what is wrong in them, and how pixels are scaled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from phyla.checkpoint import Checkpoint
from phyla.errors import CheckpointError
from phyla.family import (
    PREPROCESSOR_FILE,
    PROCESSOR_FILE,
    VIDEO_FILE,
    Affine,
    MediaSettings,
    PixelSettings,
    Preprocessing,
    Section,
)


class Settings(MediaSettings):
    size: int = Field(default=7, gt=0)
    patch_size: int | None = None


def section(files: dict[str, Any]) -> Section[Settings]:
    checkpoint: Any = object.__new__(Checkpoint)
    object.__setattr__(checkpoint, "preprocessing", files)
    return Preprocessing(checkpoint).section(Settings, "video", VIDEO_FILE, PREPROCESSOR_FILE)


@pytest.mark.parametrize(
    ("files", "size"),
    [
        ({}, 7),
        ({PREPROCESSOR_FILE: {"size": 1}}, 1),
        ({PREPROCESSOR_FILE: {"size": 1}, VIDEO_FILE: {"size": 2}}, 2),
        ({PREPROCESSOR_FILE: {"size": 1}, VIDEO_FILE: {}}, 7),
        ({VIDEO_FILE: {"size": 2}, PROCESSOR_FILE: {"video": {"size": 3}}}, 3),
        ({VIDEO_FILE: {"size": 2}, PROCESSOR_FILE: {"video": None, "size": 4}}, 2),
        ({VIDEO_FILE: {"size": None, "other": 5}}, 7),
    ],
)
def test_the_first_place_that_there_is_counts_alone(files: dict[str, Any], size: int) -> None:
    assert section(files).settings.size == size


@pytest.mark.parametrize(
    ("files", "file", "words"),
    [
        ({VIDEO_FILE: {"size": 0}}, VIDEO_FILE, "size should be greater than 0; found 0"),
        ({PROCESSOR_FILE: {"video": {"size": "a"}}}, PROCESSOR_FILE, r"video\.size should be an int"),
        ({PROCESSOR_FILE: {"video": [1]}}, PROCESSOR_FILE, "video should be a mapping"),
        ({VIDEO_FILE: {"patch_size": 4}}, VIDEO_FILE, "patch_size should be 14, as config.json has"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_file(files: dict[str, Any], file: str, words: str) -> None:
    with pytest.raises(CheckpointError, match=words) as caught:
        section(files).check("patch_size", 14)
    assert caught.value.file == file
    assert f"Compare {file}" in str(caught.value)


def test_what_a_file_does_not_say_contradicts_nothing() -> None:
    section({}).check("patch_size", 14)
    section({VIDEO_FILE: {"patch_size": 14}}).check("patch_size", 14)


CHANNELS = st.tuples(*[st.floats(0.1, 1)] * 3)


@given(CHANNELS, CHANNELS, st.booleans(), st.booleans(), st.integers(0, 255))
def test_scale_and_shift_do_what_the_keys_say(
    mean: Any, deviation: Any, rescale: bool, normalize: bool, level: int
) -> None:
    settings = PixelSettings(
        image_mean=mean, image_std=deviation, do_rescale=rescale, do_normalize=normalize
    )
    expected = np.full(3, level) * (1 / 255 if rescale else 1.0)
    if normalize:
        expected = (expected - np.array(mean)) / np.array(deviation)
    affine = settings.affine
    np.testing.assert_allclose(level * np.array(affine.scale) + affine.shift, expected, atol=1e-9)
    arrays = affine.arrays
    assert all(array.dtype == np.float32 and array.shape == (3,) for array in arrays.values())


def test_a_deviation_is_positive() -> None:
    with pytest.raises(ValueError, match="greater than 0"):
        PixelSettings(image_std=(1, 0, 1))
    assert Affine.normalizing((0, 0, 0), (1, 1, 1), factor=2).scale == (2, 2, 2)
