"""What a caller says to the prompt cache is checked where it is said."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import FrozenInstanceError

import pytest

from phyla.caching import Breakpoint, CacheExplanation, CacheLimits
from phyla.errors import RequestError


def test_limits_have_defaults() -> None:
    limits = CacheLimits()
    assert (limits.bytes, limits.entries, limits.idle_seconds) == (None, 64, 3600)
    assert limits.min_tokens == 16


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("bytes", -1),
        ("bytes", 1.5),
        ("bytes", True),
        ("bytes", "1GB"),
        ("entries", -1),
        ("entries", None),
        ("idle_seconds", 0),
        ("idle_seconds", -3.0),
        ("idle_seconds", float("nan")),
        ("idle_seconds", float("inf")),
        ("idle_seconds", True),
        ("min_tokens", 0),
        ("min_tokens", 16.0),
    ],
)
def test_a_limit_out_of_range_is_refused_by_name(field: str, value: object) -> None:
    given = {field: value}
    with pytest.raises(RequestError, match=field) as caught:
        CacheLimits(**given)  # pyright: ignore[reportArgumentType]
    assert caught.value.field == field
    assert caught.value.found is value


def test_limits_may_be_zero_which_turns_the_cache_off() -> None:
    assert CacheLimits(bytes=0).bytes == 0
    assert CacheLimits(entries=0).entries == 0


def test_limits_and_breakpoints_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        CacheLimits().entries = 3  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(FrozenInstanceError):
        Breakpoint.after_system().ttl = 3  # pyright: ignore[reportAttributeAccessIssue]


def test_a_breakpoint_is_after_the_system_message_or_after_a_message() -> None:
    assert Breakpoint.after_system() == Breakpoint(None, 300.0)
    assert Breakpoint.after_system(ttl=5).ttl == 5
    assert Breakpoint.after_message(0, ttl=60) == Breakpoint(0, 60)
    assert Breakpoint.after_message(-1).index == -1


@pytest.mark.parametrize("index", [None, 1.0, "1", True])
def test_a_breakpoint_after_no_message_in_particular_is_refused(index: object) -> None:
    with pytest.raises(RequestError) as caught:
        Breakpoint.after_message(index)  # pyright: ignore[reportArgumentType]
    assert caught.value.field == "index"


@pytest.mark.parametrize("ttl", [0, -1, float("nan"), float("inf"), None, "300"])
def test_a_breakpoint_needs_some_time_to_live(ttl: object) -> None:
    with pytest.raises(RequestError) as caught:
        Breakpoint.after_system(ttl)  # pyright: ignore[reportArgumentType]
    assert caught.value.field == "ttl"
    with pytest.raises(RequestError):
        Breakpoint.after_message(2, ttl)  # pyright: ignore[reportArgumentType]


def test_an_explanation_can_say_that_the_cache_was_not_asked() -> None:
    explanation = CacheExplanation.disabled(40)
    assert (explanation.limited_by, explanation.cached_tokens) == ("disabled", 0)
    assert explanation.prompt_tokens == 40


def test_the_public_types_do_not_load_mlx() -> None:
    code = "import sys, phyla.caching; sys.exit('mlx.core' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
