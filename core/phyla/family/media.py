"""What a family says about images, audio and video: what a prompt shows, what a tower reads.

A reader plans before it works: from an image's size alone it knows how many soft tokens the image
will take and what stands around them. What it prepares for the tower are plain arrays, so that
their bytes tell one content from another, wherever it came from.

Of an image that is given to it only the header has been read. A sound is decoded already, and a video
was decoded once, to find its frames: nothing else tells how long they are. Knows no MLX.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from phyla.modality import Modality  # noqa: TC001 (read by documentation tools)

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from phyla.media import AudioClip, ImageFile, VideoClip


@dataclass(frozen=True)
class Soft:
    """A run of soft tokens: places that the model fills with features instead of embeddings.

    Attributes:
        token: the text of the token that stands there, one token of the vocabulary.
        count: how many times.
        grid: rows and columns, where the run is a picture; their product is `count`.
    """

    token: str
    count: int
    grid: tuple[int, int] | None = None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a placeholder becomes.

    Attributes:
        pieces: texts and soft runs, in order. Texts may hold special tokens by name.
        layout: what else was decided, such as sizes after resizing; for `prepare`, and part of what
            tells one item from another.
    """

    pieces: tuple[str | Soft, ...]
    layout: Hashable = None

    @property
    def runs(self) -> tuple[Soft, ...]:
        """The soft runs, in order."""
        return tuple(piece for piece in self.pieces if isinstance(piece, Soft))

    @property
    def count(self) -> int:
        """How many soft tokens there are, and so how many rows of features."""
        return sum(run.count for run in self.runs)


@dataclass(frozen=True)
class Prepared:
    """An item as its tower reads it.

    Attributes:
        arrays: by name; compact types (pixels as uint8) are best, the tower scales them.
        views: makes what the model will see, for people: captions and `[H, W, 3]` uint8 pictures.
    """

    arrays: Mapping[str, NDArray[Any]]
    views: Callable[[], Sequence[tuple[str, NDArray[np.uint8]]]]


@dataclass(frozen=True, kw_only=True)
class MediaRequest:
    """What is asked for with one item.

    Attributes:
        number: how many items of the same modality come before it in the conversation.
        max_tokens: the most soft tokens that it may take; None leaves it to the checkpoint.
        fps: frames per second to look at, of a video; None leaves it to the checkpoint.
        max_frames: the most frames to look at.
    """

    number: int = 0
    max_tokens: int | None = None
    fps: float | None = None
    max_frames: int | None = None


Item = TypeVar("Item")


class MediaReader(ABC, Generic[Item]):
    """How a family reads one modality; made from a checkpoint's config and preprocessor files.

    Attributes:
        token: what the chat template writes where an item stands.
        before: what a template writes before it,
        after: and behind it; used where there is no template, in a session.
    """

    token: str
    before: str = ""
    after: str = ""

    @abstractmethod
    def plan(self, item: Item, request: MediaRequest) -> Plan:
        """Decide sizes and soft tokens. Of an image only the size is looked at.

        Raises:
            ValueError: the item cannot be read by this model, in words for its owner, and with what
                can be done, such as "its sides differ by more than 200 times; crop it".
        """

    @abstractmethod
    def prepare(self, item: Item, plan: Plan) -> Prepared:
        """Decode and preprocess; no MLX. Runs on the caller's thread."""


@dataclass(frozen=True, kw_only=True)
class MediaReaders:
    """A family's readers; None where the checkpoint holds no tower for a modality."""

    image: MediaReader[ImageFile] | None = None
    audio: MediaReader[AudioClip] | None = None
    video: MediaReader[VideoClip] | None = None

    def get(self, modality: Modality) -> MediaReader[Any] | None:
        """The reader of a modality."""
        readers: dict[Modality, MediaReader[Any] | None] = {
            "image": self.image, "audio": self.audio, "video": self.video,
        }  # fmt: skip
        return readers[modality]


@dataclass(frozen=True, kw_only=True)
class MediaRun:
    """A run of soft tokens in a prompt.

    Attributes:
        start: the first of its tokens,
        stop: and the one behind its last.
        modality: what it shows.
        item: the item it belongs to, counted from 0 over all modalities.
        grid: rows and columns, where it is a picture.
    """

    start: int
    stop: int
    modality: Modality
    item: int
    grid: tuple[int, int] | None = None
