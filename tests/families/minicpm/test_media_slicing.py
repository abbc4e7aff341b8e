"""How MiniCPM-V cuts pictures, and how they stand in a prompt: known from their size alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phyla.family import Soft
from phyla_families.minicpm.expansion import joined, picture_pieces
from phyla_families.minicpm.slicing import slicing

# width, height; rows x columns; patches of the overview, of a slice; soft tokens by 16x, by 4x,
# and by 16x without slices.
WORKED = [
    ((224, 224), None, (32, 32), (0, 0), 64, 256, 64),
    ((448, 448), None, (32, 32), (0, 0), 64, 256, 64),
    ((640, 480), (1, 2), (28, 36), (40, 28), 203, 772, 63),
    ((1024, 768), (2, 2), (28, 36), (28, 36), 315, 1260, 63),
    ((1920, 1080), (2, 4), (24, 44), (32, 32), 578, 2292, 66),
    ((1084, 820), (2, 3), (28, 36), (36, 28), 441, 1782, 63),
    ((300, 900), (3, 1), (56, 20), (32, 32), 262, 1020, 70),
    ((3000, 200), (1, 4), (8, 124), (16, 60), 302, 1240, 62),
    ((100, 40), None, (20, 52), (0, 0), 65, 250, 65),
]


def in_pixels(grid: tuple[int, int]) -> tuple[int, int]:
    return grid[0] * 14, grid[1] * 14


@pytest.mark.parametrize(("size", "grid", "overview", "cell", "fine", "finer", "whole"), WORKED)
def test_worked_examples_have_their_sizes_and_soft_tokens(
    size: tuple[int, int],
    grid: tuple[int, int] | None,
    overview: tuple[int, int],
    cell: tuple[int, int],
    fine: int,
    finer: int,
    whole: int,
) -> None:
    shape = size[1], size[0]
    cut = slicing(shape, resolution=448, unit=56, max_slices=9)
    assert cut.grid == grid
    assert cut.overview == in_pixels(overview)
    assert cut.cell == in_pixels(cell)
    assert cut.tokens(56) == fine
    assert slicing(shape, resolution=448, unit=28, max_slices=9).tokens(28) == finer
    assert slicing(shape, resolution=448, unit=56, max_slices=1).tokens(56) == whole


def test_more_slices_are_taken_where_they_may_be() -> None:
    cut = slicing((1080, 1920), resolution=448, unit=56, max_slices=36)
    assert cut.grid == (3, 4)
    assert cut.tokens(56) == 66 + 12 * 63


@given(
    st.tuples(st.integers(1, 9000), st.integers(1, 9000)),
    st.integers(1, 40),
    st.sampled_from([28, 56]),
)
def test_every_picture_comes_to_whole_soft_tokens(
    size: tuple[int, int], max_slices: int, unit: int
) -> None:
    cut = slicing(size, resolution=448, unit=unit, max_slices=max_slices)
    rows, columns = cut.grid or (0, 0)
    assert len(cut.views) == 1 + rows * columns <= 1 + max_slices
    assert all(side > 0 and side % unit == 0 for view in cut.views for side in view)
    pieces = joined(picture_pieces(cut, "*", unit))
    softs = [piece for piece in pieces if isinstance(piece, Soft)]
    assert sum(soft.count for soft in softs) == cut.tokens(unit)
    assert [soft.grid for soft in softs] == [(h // unit, w // unit) for h, w in cut.views]


def test_rows_of_slices_stand_on_lines_of_their_own() -> None:
    cut = slicing((768, 1024), resolution=448, unit=56, max_slices=9)
    soft = Soft("*", 63, (7, 9))
    between = "</slice><slice>"
    assert joined(picture_pieces(cut, "*", 56)) == (
        "<image>", soft, "</image><slice>", soft, between, soft, "</slice>\n<slice>", soft,
        between, soft, "</slice>",
    )  # fmt: skip
