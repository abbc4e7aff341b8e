"""`phyla families`: what is installed, and what is installed but does not work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from phyla.cli import arguments  # noqa: TC001 (read by Typer)
from phyla.cli.shell import Shell
from phyla.cli.tables import print_table

if TYPE_CHECKING:
    from phyla.registry import Listing


def families(context: typer.Context, *, json: arguments.Json = False) -> None:
    """List the model families, where each comes from, and what failed and why."""
    listing = Shell.of(context).registry.listing()
    if json:
        typer.echo(_as_json(listing))
        return
    print_table(
        ["family", "model types", "from", "version"],
        [
            [row.name, ", ".join(row.model_types), row.distribution, row.version]
            for row in listing.families
        ],
    )
    unusable = [
        *((row.name, row.distribution, row.version, row.clash) for row in listing.families),
        *((b.entry_point, b.distribution, b.version, b.reason) for b in listing.broken),
    ]
    failed = [[name, f"{where} {version}", why] for name, where, version, why in unusable if why]
    if failed:
        typer.echo("\nUnusable:")
        print_table(["plugin", "from", "why"], failed)


def _as_json(listing: Listing) -> str:
    import json
    from dataclasses import asdict

    broken = [
        {
            "entry_point": each.entry_point,
            "distribution": each.distribution,
            "version": each.version,
            "reason": each.reason,
        }
        for each in listing.broken
    ]
    families = [asdict(row) for row in listing.families]
    return json.dumps({"families": families, "broken": broken}, ensure_ascii=False)
