"""What stands for a picture in a prompt, and the arrays that its tower reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from phyla.family import MediaRequest, Plan, Soft
from phyla.media import ImageFile
from phyla_families.lfm2_vl.image_reader import ImageReader, patchified, unpatchified
from phyla_families.lfm2_vl.image_settings import ImageSettings

if TYPE_CHECKING:
    from numpy.typing import NDArray

SETTINGS = ImageSettings(downsample_factor=2, encoder_patch_size=16)
READER = ImageReader(SETTINGS)


def unseen(width: int, height: int) -> ImageFile:
    """A picture that nobody may decode."""
    return ImageFile((width, height), pytest.fail)


def noise(width: int, height: int) -> ImageFile:
    pixels = np.random.default_rng(width * height).integers(0, 256, (height, width, 3), np.uint8)
    return ImageFile((width, height), lambda: pixels)


def slopes(width: int, height: int) -> ImageFile:
    """Red grows to the right, green downwards."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[..., 0] = np.linspace(0, 255, width)
    pixels[..., 1] = np.linspace(0, 255, height)[:, None]
    return ImageFile((width, height), lambda: pixels)


def text(plan: Plan) -> str:
    return "".join(p if isinstance(p, str) else p.token * p.count for p in plan.pieces)


def test_a_small_picture_is_one_run_between_two_marks() -> None:
    plan = READER.plan(unseen(640, 480), MediaRequest())
    assert plan.pieces == ("<|image_start|>", Soft("<image>", 234, (13, 18)), "<|image_end|>")


def test_tiles_stand_row_by_row_behind_their_marks_and_the_whole_comes_last() -> None:
    plan = READER.plan(unseen(1024, 768), MediaRequest())
    tile = "<image>" * 256
    marks = [f"<|img_row_{row}_col_{column}|>" for row in (1, 2) for column in (1, 2, 3)]
    tiles = "".join(mark + tile for mark in marks)
    whole = "<|img_thumbnail|>" + "<image>" * 234
    assert text(plan) == f"<|image_start|>{tiles}{whole}<|image_end|>"
    assert plan.count == 1770
    assert [run.grid for run in plan.runs] == [(16, 16)] * 6 + [(13, 18)]


def test_without_a_thumbnail_nothing_stands_behind_the_tiles() -> None:
    reader = ImageReader(SETTINGS.model_copy(update={"use_thumbnail": False}))
    plan = reader.plan(unseen(1024, 768), MediaRequest())
    assert "<|img_thumbnail|>" not in plan.pieces
    assert plan.count == 6 * 256
    assert len(reader.prepare(noise(1024, 768), plan).arrays["shapes"]) == 6


def test_marks_can_be_switched_off() -> None:
    reader = ImageReader(SETTINGS.model_copy(update={"use_image_special_tokens": False}))
    plan = reader.plan(unseen(1024, 768), MediaRequest())
    assert text(plan) == "<image>" * 1770


def test_a_budget_shapes_the_plan() -> None:
    plan = READER.plan(unseen(1024, 768), MediaRequest(max_tokens=800))
    assert plan.count == 2 * 256 + 234
    assert plan != READER.plan(unseen(1024, 768), MediaRequest())
    with pytest.raises(ValueError, match="at least"):
        READER.plan(unseen(3000, 10), MediaRequest(max_tokens=1))


@pytest.mark.parametrize(
    ("size", "shapes"),
    [
        ((640, 480), [(26, 36)]),
        ((100, 40), [(12, 26)]),
        ((1000, 3000), [(32, 32)] * 3 + [(54, 18)]),
    ],
)
def test_the_arrays_hold_four_patches_for_each_soft_token(
    size: tuple[int, int], shapes: list[tuple[int, int]]
) -> None:
    picture = noise(*size)
    plan = READER.plan(picture, MediaRequest())
    arrays = READER.prepare(picture, plan).arrays
    assert [tuple(shape) for shape in arrays["shapes"].tolist()] == shapes
    assert arrays["patches"].shape == (4 * plan.count, 768)
    assert arrays["patches"].dtype == np.uint8
    again = READER.prepare(picture, plan).arrays
    assert all(np.array_equal(arrays[name], again[name]) for name in arrays)


def test_the_views_are_what_the_patches_show() -> None:
    picture = slopes(1024, 768)
    views = READER.prepare(picture, READER.plan(picture, MediaRequest())).views()
    assert [caption for caption, _ in views] == [
        *(f"row {row}, column {column}" for row in (1, 2) for column in (1, 2, 3)),
        "the whole picture",
    ]
    tiles = [pixels for _, pixels in views[:-1]]
    canvas = joined(tiles, rows=2, columns=3)
    assert canvas.shape == (1024, 1536, 3)
    for whole in (canvas, views[-1][1]):
        red, green = whole[..., 0].astype(int), whole[..., 1].astype(int)
        assert (np.diff(red, axis=1) >= 0).all()
        assert (np.diff(green, axis=0) >= 0).all()
        assert (red[0, 0], red[0, -1], green[0, 0], green[-1, 0]) == pytest.approx(
            (0, 255, 0, 255), abs=1
        )
    assert views[-1][1].shape == (416, 576, 3)


def test_a_picture_of_the_views_size_is_seen_as_it_is() -> None:
    picture = noise(512, 256)
    plan = READER.plan(picture, MediaRequest())
    prepared = READER.prepare(picture, plan)
    ((caption, pixels),) = prepared.views()
    assert caption == "the whole picture"
    assert np.array_equal(pixels, picture.pixels())
    first = prepared.arrays["patches"][33].reshape(16, 16, 3)
    assert np.array_equal(first, picture.pixels()[16:32, 16:32])


def test_patches_can_be_put_together_again() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (96, 64, 3), np.uint8)
    grid = patchified(pixels, 16)
    assert grid.shape == (6, 4, 768)
    assert np.array_equal(unpatchified(grid, 16), pixels)


def joined(tiles: list[NDArray[np.uint8]], *, rows: int, columns: int) -> NDArray[np.uint8]:
    lines = [
        np.concatenate(tiles[row * columns : (row + 1) * columns], axis=1) for row in range(rows)
    ]
    return np.concatenate(lines, axis=0)
