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
def read() -> Callable[..., Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SCRIPTS))
        script = runpy.run_path(str(SCRIPTS / "bench.py"))

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
