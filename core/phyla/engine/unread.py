"""What a cancelled append left unread: it has to come before anything else, and unchanged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from phyla.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from phyla.engine.media import PlacedMedia
    from phyla.prompt import Prompt


@dataclass(frozen=True, eq=False)
class Unread:
    """The rest of an append.

    Attributes:
        ids: -1 for each of the embeddings.
        embeddings: `[T, D]`, where it was embeddings that were appended.
        media: the images, audio and videos that end in it, where they stand in the session.
    """

    ids: tuple[int, ...] = ()
    embeddings: NDArray[np.float32] | None = None
    media: tuple[PlacedMedia, ...] = ()

    def check(self, ids: Sequence[int], embeddings: NDArray[np.float32] | None = None) -> None:
        """Make sure that what is appended begins with it.

        Raises:
            RequestError: it does not.
        """
        same = tuple(ids[: len(self.ids)]) == self.ids
        if same and self.embeddings is not None and embeddings is not None:
            same = np.array_equal(embeddings[: len(self.ids)], self.embeddings)
        if not same:
            raise self._error()

    def placed(self, prompt: Prompt, position: int) -> tuple[PlacedMedia, ...]:
        """The media of a prompt as they will stand behind `position`, and before them its own.

        Raises:
            RequestError: what the prompt begins with is not what was left.
        """
        placed = tuple(each.moved(position) for each in prompt.media)
        edge = position + len(self.ids)
        again = [each for each in placed if each.start < edge]
        # The ids alone stand for what was left; media that come with them have to be the same.
        if again and [_told(each) for each in again] != [_told(each) for each in self.media]:
            raise self._error()
        return (*self.media, *placed[len(again) :])

    def _error(self) -> RequestError:
        return RequestError(
            f"A cancelled append left {len(self.ids)} tokens unread.",
            field="session",
            hint="Append session.unread first, or reset the session.",
        )


def _told(placed: PlacedMedia) -> tuple[bytes, int, int]:
    return placed.item.digest, placed.start, placed.stop
