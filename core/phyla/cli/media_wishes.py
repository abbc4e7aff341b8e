"""What the options of a command say about every image, sound and video of it."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

import typer

from phyla.messages import Video

if TYPE_CHECKING:
    from collections.abc import Collection

    from phyla.messages import Medium
    from phyla.modality import Modality


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What an item may cost, and how much of a video to look at; the fields are those of blocks."""

    max_tokens: int | None = None
    fps: float | None = None
    max_frames: int | None = None

    def over(self, block: Medium) -> Medium:
        """The block as it is wished for."""
        block = block.model_copy(update={"max_tokens": self.max_tokens})
        if isinstance(block, Video):
            return block.model_copy(update={"fps": self.fps, "max_frames": self.max_frames})
        return block


def read_wishes(context: typer.Context, *, among: Collection[Modality]) -> Wishes:
    """Read `--max-media-tokens`, `--fps` and `--max-frames` of a running command.

    Args:
        context: the command's.
        among: what the command shows, or may show later on.

    Raises:
        typer.BadParameter: there is nothing that it could be about, or it is out of range.
    """
    given = context.params
    if given["max_media_tokens"] is not None and not among:
        raise typer.BadParameter(
            "there is no image, audio or video", param_hint="--max-media-tokens"
        )
    for name in ("fps", "max_frames"):
        if given[name] is not None and "video" not in among:
            raise typer.BadParameter("there is no video", param_hint="--" + name.replace("_", "-"))
    if given["fps"] is not None and not 0 < given["fps"] < inf:
        raise typer.BadParameter("should be more than 0", param_hint="--fps")
    return Wishes(
        max_tokens=given["max_media_tokens"], fps=given["fps"], max_frames=given["max_frames"]
    )
