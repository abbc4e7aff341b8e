"""Puts the commands together into one program, `phyla`. Knows no command's insides."""

from __future__ import annotations

from collections.abc import Sequence  # noqa: TC003 (read by Typer)
from typing import Annotated

import typer

import phyla
from phyla.cli import failures
from phyla.cli.bench import bench
from phyla.cli.chat import chat
from phyla.cli.families import families
from phyla.cli.inspect import inspect
from phyla.cli.media_order import InOrder
from phyla.cli.pull import pull
from phyla.cli.run import run
from phyla.cli.shell import Shell
from phyla.cli.standard_streams import prepare_streams


def _program(
    *,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show a traceback when something fails.")
    ] = False,
    version: Annotated[bool, typer.Option("--version", help="Show the version and end.")] = False,
) -> None:
    """Run language and multimodal models with MLX."""
    # `debug` is read by the group that runs the commands.
    del debug
    if version:
        typer.echo(f"phyla {phyla.__version__}")
        raise typer.Exit


def make_app(shell: Shell) -> typer.Typer:
    """The program with its own commands and those of the plugins.

    A plugin that fails here is left out; `phyla families` says why.
    """
    app = typer.Typer(
        cls=failures.Group,
        name="phyla",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    # A callback that needs no command lets `phyla --version` stand alone.
    app.callback(invoke_without_command=True)(_program)
    for command in (run, chat, families, inspect, bench, pull):
        app.command(cls=InOrder)(command)
    shell.registry.add_commands(app)
    return app


def run_program(arguments: Sequence[str] | None) -> None:
    """What `phyla.cli.main` does, once Ctrl-C is taken care of."""
    prepare_streams()
    shell = Shell.installed()
    make_app(shell)(args=arguments, prog_name="phyla", obj=shell)
