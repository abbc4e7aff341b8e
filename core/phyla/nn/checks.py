"""Checks of the numbers that blocks are built with, before they become shapes that do not fit.

An error here is a mistake of whoever builds the block; what config.json says is for its reader to
check, in config.json's words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

STATE_DTYPES = ("float32", "bfloat16", "float16")


def check_least(block: str, numbers: Sequence[tuple[str, int]], *, least: int = 1) -> None:
    """Check that numbers are integers and not too small.

    Args:
        block: what is built.
        numbers: arguments and their values.
        least: the least value that they may have.

    Raises:
        ValueError: one is not.
    """
    for name, value in numbers:
        if type(value) is not int or value < least:
            raise ValueError(
                f"{block}: {name} should be an integer of at least {least}; found {value!r}."
            )


def check_multiple(block: str, many: tuple[str, int], few: tuple[str, int]) -> None:
    """Check that one number is a multiple of another.

    Raises:
        ValueError: it is not.
    """
    if many[1] % few[1]:
        raise ValueError(
            f"{block}: {many[0]} should be a multiple of {few[0]}; found {many[1]} and {few[1]}."
        )


def check_choice(block: str, name: str, value: str, choices: Sequence[str]) -> None:
    """Check that an argument has one of some values.

    Raises:
        ValueError: it has not.
    """
    if value not in choices:
        listed = ", ".join(map(repr, choices))
        raise ValueError(f"{block}: {name} should be one of {listed}; found {value!r}.")
