"""What the program does when something fails: one line, an exit code, a traceback if asked for."""

from __future__ import annotations

import io
import os
import sys
import traceback
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from phyla.cli.interrupt import INTERRUPTED, raise_on_ctrl_c
from phyla.cli.visible import visible
from phyla.cli.wording import for_shell
from phyla.errors import PhylaError

if TYPE_CHECKING:
    from collections.abc import Sequence

# Wrong usage is for Typer to tell. The base of its errors comes from click, which newer versions of
# Typer carry inside, so it has no import of its own that fits all of them.
_USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[2]

_BROKEN_PIPE = 141  # 128 + SIGPIPE


def line(error: BaseException) -> str:
    """An error as one line, without `error:` before it; it may quote a file."""
    return visible(_line(error))


def _line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, PhylaError):
        return for_shell(text)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    what = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return f"unexpected {what} (--debug shows where; please report it)"


def report(error: BaseException, *, debug: bool) -> None:
    """Tell of an error on standard error."""
    if debug:
        typer.echo("".join(traceback.format_exception(error)), nl=False, err=True)
    label = typer.style("error:", fg=typer.colors.RED, bold=True)
    typer.echo(f"{label} {line(error)}", err=True)


def notice(text: str) -> None:
    """Say something that is no part of a reply: on standard error, in grey on a terminal."""
    typer.echo(typer.style(text, dim=True), err=True)


def debugging(context: typer.Context) -> bool:
    """Whether `--debug` was given."""
    return bool(context.find_root().params.get("debug"))


class Group(TyperGroup):
    """Runs a command and turns what it raises into a line and an exit code.

    `--debug` may stand before or after the command.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, _debug_first(args))

    def invoke(self, ctx: Any) -> Any:
        raise_on_ctrl_c()
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except (typer.Exit, typer.Abort, _USAGE_ERROR):
            raise
        except BrokenPipeError:
            _give_up_output()
            raise typer.Exit(_BROKEN_PIPE) from None
        except KeyboardInterrupt as error:
            if debugging(ctx):
                report(error, debug=True)
            raise typer.Exit(INTERRUPTED) from None
        except Exception as error:
            report(error, debug=debugging(ctx))
            raise typer.Exit(1) from error
        return result


def _debug_first(arguments: Sequence[str]) -> list[str]:
    """Move `--debug` before the command, where the program looks for it."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    before, after = arguments[:end], arguments[end:]
    if "--debug" not in before:
        return list(arguments)
    return ["--debug", *(each for each in before if each != "--debug"), *after]


def _give_up_output() -> None:
    # The interpreter flushes standard output at its end and would complain about the pipe again.
    try:
        descriptor = sys.stdout.fileno()
    except io.UnsupportedOperation:
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
