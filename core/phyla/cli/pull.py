"""`phyla pull`: fetch a model now and run it later."""

from __future__ import annotations

import typer

from phyla.cli import arguments  # noqa: TC001 (read by Typer)


def pull(
    model: arguments.Model,
    *,
    revision: arguments.Revision = None,
    offline: arguments.Offline = False,
) -> None:
    """Fetch a model into the cache, check its files, and print where it lies."""
    from phyla import checkpoint

    typer.echo(str(checkpoint.pull(model, revision=revision, offline=offline or None)))
