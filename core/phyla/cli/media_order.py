"""Images, audio and videos on the command line, in the order in which they stand there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typer.core import TyperCommand

from phyla.modality import MODALITIES

if TYPE_CHECKING:
    import typer

    from phyla.modality import Modality

_ORDER = "phyla.cli.order"


class InOrder(TyperCommand):
    """A command that keeps the order of its options, which the parser forgets otherwise."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        # First, since the other parser takes the list to pieces. What is wrong is told by both.
        _, _, order = self.make_parser(ctx).parse_args(args=list(args))
        ctx.meta[_ORDER] = [parameter.name for parameter in order]
        return super().parse_args(ctx, args)


def given_media(context: typer.Context) -> list[tuple[Modality, str]]:
    """What `--image`, `--audio` and `--video` of a running command say, in their order."""
    texts = {name: iter(context.params[name] or ()) for name in MODALITIES}
    return [(name, next(texts[name])) for name in context.meta[_ORDER] if name in texts]
