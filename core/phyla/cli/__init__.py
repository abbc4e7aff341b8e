"""The command line. Importing it imports next to nothing, so that Ctrl-C finds its handler set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phyla.cli.interrupt import leave_on_ctrl_c

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program and exit: 0 if all went well, 1 on an error, 2 on wrong usage, 130 by Ctrl-C.

    Args:
        arguments: what follows the program's name; None takes them from the process.
    """
    leave_on_ctrl_c()
    # Not above: importing this and the plugins takes a while, in which Ctrl-C may come.
    from phyla.cli.app import run_program

    run_program(arguments)
