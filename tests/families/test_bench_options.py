"""scripts/bench.py refuses options that it would leave out."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SCRIPTS))
        return runpy.run_path(str(SCRIPTS / "bench.py"))


@pytest.fixture(scope="module")
def fitting_sizes(script: dict[str, Any]) -> Callable[..., tuple[int, ...]]:
    return script["_fitting_sizes"]


@pytest.fixture(scope="module")
def read(script: dict[str, Any]) -> Callable[..., Any]:
    def options(*arguments: str) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", ["bench.py", *arguments])
            return script["_options"]()

    return options


@pytest.mark.parametrize(
    "arguments",
    [
        ("demo",),
        ("demo", "--peers", "mlx-lm", "--runs", "2", "--prompt-sizes", "8,9", "--json", "out"),
        ("demo", "--streams", "1,2", "--decode", "8", "--loads", "1", "--budget", "1"),
        ("demo", "--warm", "100", "--runs", "2"),
        ("demo", "--classifier", "--dtype", "float32", "--decode", "8"),
        ("--types",),
        ("--types", "qwen3", "--json", "out", "--runs", "2"),
        ("--long-decode", "150"),
        ("--types", "qwen3", "--long-decode", "200", "--json", "out"),
    ],
)
def test_options_that_go_together_are_taken(read: Callable[..., Any], arguments: Any) -> None:
    assert read(*arguments).runs in (2, 5)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--long-decode", "200", "--json", "out"), "--long-decode does not go by --json"),
        (("--long-decode", "200", "--runs", "5"), "--runs"),
        (("--types", "qwen3", "--loads", "3"), "--types does not go by --loads"),
        (("--types", "qwen3", "--streams", "1"), "--streams and --types"),
        (("demo", "--streams", "1", "--prompt-sizes", "8"), "--prompt-sizes"),
        (("demo", "--warm", "8", "--peers", "mlx-lm"), "--peers"),
        (("demo", "--warm", "8", "--classifier"), "--warm and --classifier"),
        (("demo", "--classifier", "--json", "out"), "--json"),
        (("demo", "--types"), "MODEL"),
        ((), "MODEL"),
        (("--long-decode", "20"), "150"),
        (("demo", "--loads", "0"), "at least 1"),
        (("demo", "--warm", "0"), "at least 1"),
        (("demo", "--decode", "1"), "1 is not at least 2"),
        (("demo", "--prompt-sizes", "32,"), "'' is no whole number"),
        (("demo", "--prompt-sizes", "1k"), "'1k' is no whole number"),
    ],
)
def test_an_option_that_would_be_left_out_is_refused(
    read: Callable[..., Any],
    arguments: Any,
    words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        read(*arguments)
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("demo", "--prompt-sizes", "32,1024"), "--prompt-sizes 1024: the model has room for 512"),
        (("demo", "--prompt-sizes", "512"), "a prompt may have 511 at most"),
        (("demo", "--prompt-sizes", "8", "--decode", "500"), "--decode 500"),
        (("demo", "--streams", "2", "--decode", "500"), "--decode 500"),
    ],
)
def test_what_the_context_has_no_room_for_is_refused_before_a_peer_starts(
    read: Callable[..., Any], fitting_sizes: Callable[..., Any], arguments: Any, words: str
) -> None:
    options = read(*arguments)
    for context in (None, 4096):
        assert fitting_sizes(options, context) == (options.prompt_sizes or (32, 512, 2048))
    with pytest.raises(SystemExit) as refused:
        fitting_sizes(options, 512)
    assert words in str(refused.value)


def test_the_usual_sizes_are_measured_as_far_as_they_fit(
    read: Callable[..., Any], fitting_sizes: Callable[..., Any]
) -> None:
    assert fitting_sizes(read("demo"), 2048) == (32, 512)
