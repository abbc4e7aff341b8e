"""Advice for programmers, as the command line gives it."""

from __future__ import annotations

import pytest

from phyla.cli.wording import for_shell
from phyla.errors import ContextOverflowError, MemoryLimitError
from phyla.media.item import Item
from phyla.media.limits import MediaLimits


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ContextOverflowError(limit=10, excess=3, configured=20), "or use --max-context 20."),
        (ContextOverflowError(limit=9, excess=3, media=5), "--max-media-tokens or --max-frames."),
        (ContextOverflowError(limit=10, excess=3), "; --max-context can be raised up to the model"),
        (MemoryLimitError(needed=9, limit=8), "Shorten the prompt or lower --max-tokens."),
        (
            Item("image", 0, MediaLimits()).error("no.", "Cut it, or raise MediaLimits.a."),
            "Cut it.",
        ),
        (Item("image", 0, MediaLimits()).error("9 (MediaLimits.a)."), "9."),
    ],
)
def test_options_stand_in_the_place_of_arguments(error, said):
    assert for_shell(str(error)).endswith(said) or said in for_shell(str(error))


def test_a_family_is_chosen_by_an_option():
    hint = 'Decide by hand with family="one" or family="two-b".'
    assert for_shell(hint) == "Decide by hand with --family one or --family two-b."


def test_other_words_stay():
    text = "You said max_context and MediaLimits; raise both."
    assert for_shell(text) == text
