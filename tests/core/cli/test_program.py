"""What holds for every command: errors, exit codes, plugins, and what starting costs."""

from __future__ import annotations

import subprocess
import sys
import types

import pytest

import phyla as package
from phyla.cli import failures
from phyla.hooks import hookimpl


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_version_is_the_packages(phyla):
    assert phyla("--version").stdout == f"phyla {package.__version__}\n"


@pytest.mark.parametrize("command", [None, "run", "chat", "families", "inspect", "bench", "pull"])
def test_every_command_has_help(phyla, command):
    result = phyla(*([command] if command else []), "--help")
    assert (result.exit_code, result.stderr) == (0, "")


def test_wrong_usage_is_exit_code_2(phyla):
    assert phyla("run").exit_code == 2
    assert phyla("no-such-command").exit_code == 2


def test_help_is_shown_without_mlx_and_without_pydantic():
    code = """
import sys
from phyla.cli import main
try:
    main(["--help"])
except SystemExit as end:
    assert end.code == 0
print(sorted({"mlx.core", "pydantic", "tokenizers", "numpy"} & sys.modules.keys()))
"""
    assert python(code).stdout.splitlines()[-1] == "[]"


def test_a_missing_model_is_one_line_and_exit_code_1(phyla):
    for command in (["run", "/no/such", "Hi"], ["inspect", "/no/such"], ["pull", "/no/such"]):
        result = phyla(*command)
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr.startswith("error: There is no /no/such.")
        assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments", [["--debug", "pull", "/no/such"], ["pull", "/no/such", "--debug"]]
)
def test_debug_shows_the_traceback_wherever_it_stands(phyla, arguments):
    result = phyla(*arguments)
    assert result.exit_code == 1
    assert result.stderr.startswith("Traceback")
    assert result.stderr.splitlines()[-1].startswith("error: There is no /no/such.")


def test_debug_after_two_dashes_is_text(program):
    phyla = program()
    assert phyla("run", "m", "--", "--debug").exit_code == 0
    assert phyla.engine.asked[0].messages == [("user", "--debug")]


def test_an_unexpected_error_is_one_line_too(program, script):
    result = program(script(error=KeyError("layer")))("run", "m", "Hi")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: unexpected KeyError: 'layer' (--debug shows where")
    assert result.stderr.count("\n") == 1


def test_a_file_error_names_the_file():
    assert failures.line(FileNotFoundError(2, "No such file", "a.txt")) == "a.txt: No such file"


def test_a_reader_that_goes_away_ends_the_program_in_silence():
    with subprocess.Popen(
        [sys.executable, "-m", "phyla.cli", "families"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert (process.stderr.read(), process.wait()) == ("", 141)


def test_a_plugin_adds_a_command(program):
    @hookimpl
    def phyla_commands(app) -> None:
        @app.command()
        def greet() -> None:
            """Say hello."""
            print("hello from a plugin")

    module = types.ModuleType("greeting")
    module.phyla_commands = phyla_commands  # pyright: ignore[reportAttributeAccessIssue]
    phyla = program(modules=[module])
    assert phyla("greet").stdout == "hello from a plugin\n"
    assert "greet" in phyla("--help").stdout


def test_a_broken_plugin_leaves_the_program_whole(program):
    @hookimpl
    def phyla_commands(app) -> None:
        raise RuntimeError("the plugin's fault")

    module = types.ModuleType("trouble")
    module.phyla_commands = phyla_commands  # pyright: ignore[reportAttributeAccessIssue]
    phyla = program(modules=[module])
    assert phyla("run", "m", "Hi").stdout == "Hello there\n"
    assert "the plugin's fault" in phyla("families").stdout


def test_closed_standard_streams_are_no_error():
    # What is closed is filled in before any command runs, so one table is enough.
    for command, closed in (
        ("--version", ">&-"),
        ("--version", "2>&-"),
        ("families", ">&- 2>&- <&-"),
    ):
        ended = subprocess.run(
            ["sh", "-c", f"'{sys.executable}' -m phyla.cli {command} {closed}"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (ended.returncode, ended.stderr) == (0, "")


def test_ctrl_c_while_the_program_starts_ends_it_in_silence():
    code = """
import builtins, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from phyla.cli import main
real = builtins.__import__
def press(name, *rest):
    if name == "typer":
        signal.raise_signal(signal.SIGINT)
    return real(name, *rest)
builtins.__import__ = press
main(["--help"])
"""
    ended = python(code)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


def test_ctrl_c_while_something_is_loaded_ends_the_program_at_once():
    code = """
import signal
from phyla.cli.shell import working
with working("Loading"):
    print("so far")
    signal.raise_signal(signal.SIGINT)
    print("too far")
"""
    ended = python(code)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "so far\n", "")
