"""JSON types that a key may not have, by the type that it is declared with."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from phyla.family.json_types import mistyped

Positive = Annotated[int, Field(gt=0)]


@pytest.mark.parametrize(
    ("value", "annotation", "expected"),
    [
        ("8", int, "an integer"),
        (True, int | None, "an integer"),
        ("8", float, "a number"),
        (True, int | float, "a number"),
        ("true", bool | None, "true or false"),
        (["1", 2], tuple[int, ...], "a list of integers"),
        ([1, True], tuple[Positive, Positive], "a list of integers"),
        (["1"], tuple[float, ...] | None, "a list of numbers"),
        (["1"], list[int], "a list of integers"),
        ([[1, "2"]], tuple[tuple[int, int], ...], "a list of lists"),
        ([[1, 2]], tuple[tuple[int, int], ...], None),
        (["a"], tuple[float, ...] | tuple[str, ...], None),
        ([], tuple[int, ...], None),
        (8, int, None),
        (8.0, int, None),
        (0, bool, None),
        (True, bool, None),
        (None, int | None, None),
        ("8", str | int, None),
        ("vision", Literal["vision"] | None, None),
        (["a"], tuple[str, ...], None),
        (["a"], int, None),
        ({"a": "1"}, int, None),
    ],
)
def test_text_and_truth_are_no_numbers(value: Any, annotation: Any, expected: str | None) -> None:
    assert mistyped(value, annotation) == expected
