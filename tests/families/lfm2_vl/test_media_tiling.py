"""How many soft tokens a picture takes, from its size alone.

The sizes, grids and counts are those of transformers' Lfm2VlImageProcessor.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phyla_families.lfm2_vl.image_settings import ImageSettings
from phyla_families.lfm2_vl.tiling import Views, lay_out

SETTINGS = ImageSettings(downsample_factor=2, encoder_patch_size=16)
SIDES = st.one_of(st.integers(1, 4000), st.sampled_from([1, 16, 32, 48, 80, 512, 1024]))


@pytest.mark.parametrize(
    ("size", "views", "count"),
    [
        ((64, 64), Views(1, 1, (256, 256)), 64),
        ((640, 480), Views(1, 1, (416, 576)), 234),
        ((1024, 768), Views(2, 3, (416, 576)), 1770),
        ((1920, 1080), Views(2, 4, (384, 672)), 2300),
        ((1000, 3000), Views(3, 1, (864, 288)), 1011),
        ((724, 724), Views(2, 2, (512, 512)), 1280),
        ((300, 900), Views(1, 1, (896, 288)), 252),
        ((100, 40), Views(1, 1, (192, 416)), 78),
        ((3000, 200), Views(1, 10, (128, 1952)), 2804),
        ((5000, 10), Views(1, 1, (32, 4992)), 156),
        ((1, 1), Views(1, 1, (256, 256)), 64),
    ],
)
def test_sizes_and_counts_are_the_references(
    size: tuple[int, int], views: Views, count: int
) -> None:
    assert lay_out(*size, SETTINGS) == views
    assert views.tokens(SETTINGS) == count


@pytest.mark.parametrize(
    ("size", "whole"),
    [((80, 2000), (1984, 64)), ((48, 2064), (2048, 64)), ((16, 3000), (3008, 32))],
)
def test_a_side_between_two_multiples_goes_to_the_even_one(
    size: tuple[int, int], whole: tuple[int, int]
) -> None:
    assert lay_out(*size, SETTINGS).whole == whole


def test_a_picture_with_the_pixels_for_it_is_cut_into_more_tiles_of_one_shape() -> None:
    two, eight = lay_out(1448, 724, SETTINGS), lay_out(1450, 725, SETTINGS)
    assert (two.rows, two.columns) == (1, 2)
    assert (eight.rows, eight.columns) == (2, 4)


@given(SIDES, SIDES)
def test_a_picture_takes_as_many_tokens_as_its_views_have(width: int, height: int) -> None:
    try:
        views = lay_out(width, height, SETTINGS)
    except ValueError:
        assert max(width, height) > 256 * min(width, height)
        return
    assert views.whole is not None
    assert views.tiles == 0 or 2 <= views.tiles <= 10
    assert all(side % 32 == 0 for side in views.whole)
    whole = views.whole[0] * views.whole[1] // 1024
    assert views.tokens(SETTINGS) == views.tiles * 256 + whole
    assert whole <= 256


@given(SIDES, SIDES, st.integers(1, 3000))
def test_a_budget_is_kept_or_refused(width: int, height: int, budget: int) -> None:
    try:
        free = lay_out(width, height, SETTINGS)
    except ValueError:
        return
    try:
        views = lay_out(width, height, SETTINGS, budget=budget)
    except ValueError:
        assert max(width, height) > budget * min(width, height)
        return
    assert views.tokens(SETTINGS) <= budget
    if free.tokens(SETTINGS) <= budget:
        assert views == free


@pytest.mark.parametrize(
    ("budget", "views"),
    [
        (2000, Views(1, 2, (384, 672))),
        (300, Views(1, 1, (384, 672))),
        (100, Views(1, 1, (224, 416))),
    ],
)
def test_a_picture_over_its_budget_loses_tiles_and_then_size(budget: int, views: Views) -> None:
    assert lay_out(1920, 1080, SETTINGS, budget=budget) == views


@pytest.mark.parametrize("size", [(1382, 1), (1, 1335), (40_000, 30)])
def test_a_picture_too_long_for_a_view_is_refused(size: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="differ too much"):
        lay_out(*size, SETTINGS)


@pytest.mark.parametrize("budget", [0, 3])
def test_a_budget_too_small_is_refused_with_what_it_takes(budget: int) -> None:
    with pytest.raises(ValueError, match=f"takes at least .* tokens, and may take {budget}"):
        lay_out(2000, 100, SETTINGS, budget=budget)


@pytest.mark.parametrize(
    "settings", [{"do_image_splitting": False}, {"min_tiles": 1, "max_tiles": 1}]
)
def test_without_splitting_a_large_picture_is_one_view(settings: dict[str, int]) -> None:
    whole = SETTINGS.model_copy(update=settings)
    assert lay_out(1920, 1080, whole) == Views(1, 1, (384, 672))


def test_without_a_thumbnail_only_tiles_are_seen() -> None:
    settings = SETTINGS.model_copy(update={"use_thumbnail": False})
    views = lay_out(1024, 768, settings)
    assert views == Views(2, 3, None)
    assert views.tokens(settings) == 6 * 256
    assert lay_out(640, 480, settings).whole == (416, 576)


def test_a_large_picture_that_one_tile_fits_best_is_one_view() -> None:
    settings = SETTINGS.model_copy(update={"min_tiles": 1, "max_tiles": 3})
    assert lay_out(900, 900, settings) == Views(1, 1, (512, 512))
