"""From media in a conversation to soft tokens in a prompt. Knows no MLX and no family.

A template writes one placeholder for each item. What it stands for is decided by the family's
reader from the item's outside, its size say; the content is decoded when the prompt is run.
"""

from __future__ import annotations

import hashlib
import re
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from phyla.engine.pool import Key
from phyla.errors import (
    CheckpointError,
    MediaError,
    PluginError,
    RequestError,
    TemplateError,
    UnsupportedModalityError,
)
from phyla.family.media import MediaRequest, MediaRun, Soft
from phyla.media import open_audio, open_image, open_video
from phyla.messages import Audio, Image, Video
from phyla.modality import MODALITIES, PLURALS, Capabilities

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from phyla.engine.tokenizer import Tokenizer
    from phyla.family.media import MediaReader, MediaReaders, Plan, Prepared
    from phyla.media import MediaLimits
    from phyla.messages import Medium, Message
    from phyla.modality import Modality


class MediaItem:
    """One item of a request: opened and planned; decoded once somebody asks for its content.

    Attributes:
        modality: what it is.
        index: its place among the request's items.
        plan: what stands for it in the prompt.
        opened: it as `phyla.media` opened it: an `ImageFile`, `AudioClip` or `VideoClip`.
    """

    def __init__(
        self, modality: Modality, index: int, opened: Any, reader: MediaReader[Any], plan: Plan
    ) -> None:
        self.modality: Modality = modality
        self.index = index
        self.plan = plan
        self.opened = opened
        self._reader = reader
        self._lock = threading.Lock()
        self._content: tuple[Prepared, bytes] | None = None

    def prepare(self) -> None:
        """Decode and preprocess, if that is not done.

        Raises:
            MediaError: the content cannot be decoded.
        """
        self._prepared()

    @property
    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """What the tower reads."""
        return self._prepared()[0].arrays

    @property
    def views(self) -> Sequence[tuple[str, NDArray[np.uint8]]]:
        """What the model will see, for people."""
        return self._prepared()[0].views()

    @property
    def digest(self) -> bytes:
        """Tells this content, as the model sees it, from every other."""
        return self._prepared()[1]

    def _prepared(self) -> tuple[Prepared, bytes]:
        with self._lock:
            if self._content is None:
                try:
                    prepared = self._reader.prepare(self.opened, self.plan)
                except ValueError as error:
                    raise _unreadable(self.modality, self.index, error) from error
                self._content = prepared, _digest(self.modality, self.plan, prepared.arrays)
            return self._content


def _digest(modality: Modality, plan: Plan, arrays: Mapping[str, NDArray[Any]]) -> bytes:
    # What stands before and behind all soft tokens is no part of what they mean.
    places = [place for place, piece in enumerate(plan.pieces) if isinstance(piece, Soft)]
    inner = plan.pieces[places[0] : places[-1] + 1] if places else ()
    # Wide enough that nobody finds two contents with one digest on purpose.
    digest = hashlib.blake2b(digest_size=32)
    digest.update(repr((modality, inner, plan.layout)).encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(repr((name, str(array.dtype), array.shape)).encode())
        digest.update(array.tobytes())
    return digest.digest()


def _unreadable(modality: Modality, index: int, error: ValueError) -> MediaError:
    return MediaError(
        f"media[{index}]: this model cannot read the {modality}: {str(error).rstrip('.')}.",
        index=index,
    )


@dataclass(frozen=True)
class PlacedMedia:
    """An item in a prompt.

    Attributes:
        item: the item.
        start: the first of its soft tokens,
        stop: and what is behind the last one.
        runs: its runs of soft tokens.
    """

    item: MediaItem
    start: int
    stop: int
    runs: tuple[MediaRun, ...]

    def moved(self, by: int, *, item: int = 0) -> PlacedMedia:
        """The same further on, in a sequence that holds `item` items before it already."""
        runs = tuple(
            MediaRun(
                start=run.start + by,
                stop=run.stop + by,
                modality=run.modality,
                item=run.item + item,
                grid=run.grid,
            )
            for run in self.runs
        )
        return PlacedMedia(self.item, self.start + by, self.stop + by, runs)


@dataclass(frozen=True)
class Expanded:
    """A text with its media in token ids."""

    ids: tuple[int, ...]
    media: tuple[PlacedMedia, ...] = ()


class MediaDesk:
    """Opens a request's media and puts them in their places.

    Args:
        readers: the family's.
        tokenizer: the checkpoint's.
        limits: what may be read, and how much of it.
    """

    def __init__(self, readers: MediaReaders, tokenizer: Tokenizer, limits: MediaLimits) -> None:
        self._readers: dict[Modality, MediaReader[Any]] = {
            modality: reader
            for modality in MODALITIES
            if (reader := readers.get(modality)) is not None
        }
        self._tokenizer = tokenizer
        self._limits = limits
        self._modalities: dict[str, Modality] = {
            reader.token: name for name, reader in self._readers.items()
        }
        longest_first = sorted(self._modalities, key=len, reverse=True)
        self._places = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")

    @property
    def capabilities(self) -> Capabilities:
        """What can be read."""
        return Capabilities(**dict.fromkeys(self._readers, True))

    def open(self, messages: Sequence[Message]) -> tuple[MediaItem, ...]:
        """Open what a conversation holds.

        Raises:
            UnsupportedModalityError: the model cannot read one of them; none was opened.
            MediaError: one cannot be opened.
        """
        return self.open_blocks([block for message in messages for block in message.media])

    def open_blocks(
        self, blocks: Sequence[Medium], *, held: Sequence[MediaItem] = ()
    ) -> tuple[MediaItem, ...]:
        """Open items in their order; see `open`. `held` are those that came before them."""
        for index, block in enumerate(blocks):
            if block.type not in self._readers:
                raise self._unsupported(block.type, index)
        counts: dict[Modality, int] = dict.fromkeys(MODALITIES, 0)
        for item in held:
            counts[item.modality] += 1
        items: list[MediaItem] = []
        for index, block in enumerate(blocks):
            items.append(self._open(block, index, counts[block.type]))
            counts[block.type] += 1
        return tuple(items)

    def wrapped(self, item: MediaItem) -> str:
        """What a template would write for an item, for a place where there is no template."""
        reader = self._readers[item.modality]
        return f"{reader.before}{reader.token}{reader.after}"

    def _open(self, block: Medium, index: int, number: int) -> MediaItem:
        reader, limits = self._readers[block.type], self._limits
        request = MediaRequest(number=number, max_tokens=block.max_tokens)
        opened: object
        match block:
            case Image():
                opened = open_image(block.source, index=index, limits=limits)
            case Audio():
                opened = open_audio(block.source, index=index, limits=limits, rate=block.rate)
            case Video():
                opened = open_video(block.source, index=index, limits=limits, fps=block.source_fps)
                request = MediaRequest(
                    number=number,
                    max_tokens=block.max_tokens,
                    fps=block.fps,
                    max_frames=block.max_frames,
                )
        try:
            plan = reader.plan(opened, request)
        except ValueError as error:
            raise _unreadable(block.type, index, error) from error
        return MediaItem(block.type, index, opened, reader, plan)

    def _unsupported(self, modality: Modality, index: int) -> UnsupportedModalityError:
        able = ["text", *(PLURALS[name] for name in self._readers)]
        reads = f"{', '.join(able[:-1])} and {able[-1]}" if len(able) > 1 else "text only"
        return UnsupportedModalityError(
            f"media[{index}]: this model reads no {PLURALS[modality]}; it reads {reads}.",
            modality=modality,
            index=index,
            hint="Leave it out, or load a model that reads it; see `engine.capabilities`.",
        )

    # Placing.

    def places(self, text: str) -> int:
        """How many placeholders a text holds."""
        return len(self._places.findall(text))

    def expand(
        self,
        text: str,
        items: Sequence[MediaItem] = (),
        *,
        add_special_tokens: bool = False,
        partly: bool = False,
    ) -> Expanded:
        """Encode a text, each placeholder as what the item in its place comes to.

        Args:
            text: as a template rendered it.
            items: in their order.
            add_special_tokens: whether to add those of the tokenizer, such as BOS.
            partly: whether the text may hold fewer places than there are items, the first ones.

        Raises:
            TemplateError: there are not as many places as items, or in another order.
        """
        if not items:
            return Expanded(tuple(self._encode(text, add_special_tokens)))
        places = list(self._places.finditer(text))
        self._check(places, items, partly=partly)
        parts: list[str] = []
        runs: list[tuple[int, Soft]] = []
        at = 0
        for number, (place, item) in enumerate(zip(places, items, strict=False)):
            parts.append(text[at : place.start()])
            for piece in item.plan.pieces:
                if isinstance(piece, Soft):
                    # Once, so that the tokenizer sees what it would see of the whole run.
                    parts.append(piece.token)
                    runs.append((number, piece))
                else:
                    parts.append(piece)
            at = place.end()
        parts.append(text[at:])
        return self._fill(self._encode("".join(parts), add_special_tokens), runs, items)

    def _encode(self, text: str, add_special_tokens: bool) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=add_special_tokens)

    def _check(
        self, places: Sequence[re.Match[str]], items: Sequence[MediaItem], *, partly: bool
    ) -> None:
        shown: list[Modality] = [self._modalities[place.group()] for place in places]
        wanted: list[Modality] = [item.modality for item in items]
        if shown == wanted or (partly and shown == wanted[: len(shown)]):
            return
        tokens = " or ".join(repr(token) for token in self._modalities)
        raise TemplateError(
            f"The conversation holds {_counted(wanted)}, and its text has places for "
            f"{_counted(shown)}.",
            reason="media and their places differ",
            hint=f"Texts must not hold {tokens}; if none does, the chat template does not show "
            "all media.",
        )

    def _fill(
        self, encoded: Iterable[int], runs: Sequence[tuple[int, Soft]], items: Sequence[MediaItem]
    ) -> Expanded:
        """Write each run's token as often as the run is long."""
        expected = [self._token_id(soft.token) for _, soft in runs]
        soft_ids = frozenset(expected)
        ids: list[int] = []
        placed: dict[int, list[MediaRun]] = {}
        met = 0
        for token in encoded:
            if token not in soft_ids:
                ids.append(token)
                continue
            if met == len(runs) or expected[met] != token:
                raise self._stray(token)
            number, soft = runs[met]
            met += 1
            placed.setdefault(number, []).append(
                MediaRun(
                    start=len(ids),
                    stop=len(ids) + soft.count,
                    modality=items[number].modality,
                    item=number,
                    grid=soft.grid,
                )
            )
            ids.extend([token] * soft.count)
        if met != len(runs):
            raise self._stray(expected[met])
        return Expanded(
            tuple(ids),
            tuple(
                PlacedMedia(items[number], group[0].start, group[-1].stop, tuple(group))
                for number, group in placed.items()
            ),
        )

    def _stray(self, token: int) -> RequestError:
        text = self._tokenizer.token_text(token)
        return RequestError(
            f"A text of the conversation holds {text!r}, which stands for a part of an image, "
            "audio or video.",
            field="messages",
            found=text,
            hint="Write it in another way.",
        )

    def _token_id(self, text: str) -> int:
        token = self._tokenizer.token_id(text)
        if token is None:
            raise CheckpointError(
                f"The tokenizer has no token {text!r}, which stands for media.",
                file="tokenizer.json",
                expected=text,
                hint="Fetch the tokenizer that belongs to this checkpoint.",
            )
        return token


def _counted(modalities: Sequence[Modality]) -> str:
    counts: list[tuple[int, Modality]] = [(modalities.count(name), name) for name in MODALITIES]
    words = [f"{count} {name if count == 1 else PLURALS[name]}" for count, name in counts if count]
    return " and ".join(words) or "no media"


def key_of(ids: Sequence[int], media: Sequence[PlacedMedia]) -> Key:
    """What the pool knows a sequence by: its ids, and where media are their content."""
    if not media:
        return Key(tuple(ids))
    items: list[Hashable] = list(ids)
    for placed in media:
        items[placed.start : placed.stop] = [placed.item.digest] * (placed.stop - placed.start)
    return Key(tuple(items), tuple((placed.start, placed.stop) for placed in media))


def wrong_features(item: MediaItem, found: int) -> PluginError:
    """A tower made another number of rows than its reader planned."""
    return PluginError(
        f"The tower made {found} features of media[{item.index}], for {item.plan.count} soft "
        "tokens.",
        hint="Report it to the family's author.",
    )
