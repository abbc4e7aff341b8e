"""Tables on standard output: as wide as a terminal, or as wide as they are when piped.

Cells may come from files of others, so characters that steer a terminal are written out.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from phyla.cli.visible import visible

if TYPE_CHECKING:
    from collections.abc import Sequence


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, right: int = 0) -> None:
    """Print rows under headers; the last `right` columns are numbers, set to the right."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for place, header in enumerate(headers):
        numeric = place >= len(headers) - right
        table.add_column(header, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(visible, row))
    _print(table)


def print_fields(fields: Sequence[tuple[str, str]]) -> None:
    """Print names and values, a line each; an empty name goes on with the field above."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in fields:
        table.add_row(name, visible(value))
    _print(table)


def _print(table: object) -> None:
    from rich.console import Console

    # Rich takes a pipe to be 80 columns wide and would break lines there.
    width = None if sys.stdout.isatty() else 10_000
    console = Console(width=width, markup=False, highlight=False, emoji=False)
    with console.capture() as capture:
        console.print(table)
    # Rich fills every cell up to its column's width.
    sys.stdout.writelines(f"{line.rstrip()}\n" for line in capture.get().splitlines())
