"""From media in a conversation to soft tokens in a prompt. Knows no MLX and no family.

A template writes one placeholder for each item. What it stands for is decided by the family's
reader from the item's outside, its size say; the content is decoded when the prompt is run.
"""

from __future__ import annotations

import hashlib
import re
import threading
from dataclasses import dataclass, replace
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
        reader: the family's.
    """

    def __init__(
        self, modality: Modality, index: int, opened: Any, reader: MediaReader[Any], plan: Plan
    ) -> None:
        self.modality: Modality = modality
        self.index = index
        self.plan = plan
        self.reader = reader
        self.opened = opened
        self._lock = threading.Lock()
        self._prepared: Prepared | None = None
        self._digest: bytes | None = None

    def prepare(self) -> None:
        """Decode and preprocess, if that was not done yet.

        Raises:
            MediaError: the content cannot be decoded.
        """
        _ = self.digest

    @property
    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """What the tower reads."""
        with self._lock:
            return self._content().arrays

    @property
    def views(self) -> Sequence[tuple[str, NDArray[np.uint8]]]:
        """What the model will see, for people."""
        with self._lock:
            return self._content().views()

    @property
    def digest(self) -> bytes:
        """Tells this content, as the model sees it, from every other."""
        with self._lock:
            if self._digest is None:
                arrays = self._content().arrays
                self._digest = _digest(self.modality, self.plan, arrays)
            return self._digest

    def forget(self) -> None:
        """Give the decoded content back; it is decoded again should somebody ask for it."""
        with self._lock:
            self._prepared = None

    def _content(self) -> Prepared:
        if self._prepared is None:
            try:
                self._prepared = self.reader.prepare(self.opened, self.plan)
            except ValueError as error:
                raise _unreadable(self.modality, self.index, error) from error
        return self._prepared


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
        hint="Change it, or leave it out.",
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

    def moved(self, by: int) -> PlacedMedia:
        """The same so many tokens further on."""
        runs = tuple(replace(run, start=run.start + by, stop=run.stop + by) for run in self.runs)
        return PlacedMedia(self.item, self.start + by, self.stop + by, runs)

    def numbered(self, number: int) -> PlacedMedia:
        """The same as another item of its sequence."""
        return replace(self, runs=tuple(replace(run, item=number) for run in self.runs))


@dataclass(frozen=True)
class Masks:
    """Words of a conversation that are spelt like placeholders, and what stands for them meanwhile.

    A template gets the masks, so that every placeholder in what it renders is one of its own.
    """

    by_word: Mapping[str, str]

    def __bool__(self) -> bool:
        return bool(self.by_word)

    def hide(self, text: str) -> str:
        """Put the masks in."""
        for word, mask in self.by_word.items():
            text = text.replace(word, mask)
        return text

    def show(self, text: str) -> str:
        """Put the words back."""
        for word, mask in self.by_word.items():
            text = text.replace(mask, word)
        return text

    def apart(self, text: str) -> list[str]:
        """Pieces that hold the words again, each cut in two, for none to become a token."""
        pieces = [text]
        for word, mask in self.by_word.items():
            cut: list[str] = []
            for piece in pieces:
                first, *rest = piece.split(mask)
                for part in rest:
                    cut.append(first + word[:1])
                    first = word[1:] + part
                cut.append(first)
            pieces = cut
        return pieces


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

    @property
    def placeholders(self) -> tuple[str, ...]:
        """What templates write where media stand."""
        return tuple(self._modalities)

    def open(
        self, messages: Sequence[Message], *, held: Sequence[MediaItem] = ()
    ) -> tuple[MediaItem, ...]:
        """Open what a conversation holds; `held` are its first items, which are open already.

        Raises:
            UnsupportedModalityError: the model cannot read one of them; none was opened.
            MediaError: one cannot be opened.
        """
        blocks = [block for message in messages for block in message.media]
        return (*held, *self.open_blocks(blocks[len(held) :], held=held))

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
        if block.max_tokens is not None and plan.count > block.max_tokens:
            raise MediaError(
                f"media[{index}]: the {block.type} takes {plan.count} tokens, more than its "
                f"max_tokens, {block.max_tokens}; the model cannot read it in fewer.",
                index=index,
                hint="Raise max_tokens, or pass a smaller or shorter one.",
            )
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

    def check(self, ids: Sequence[int], media: Sequence[PlacedMedia]) -> None:
        """See that media stand where they say, and are this engine's.

        Raises:
            RequestError: they do not, as when ids were changed by hand.
        """
        end = 0
        for number, placed in enumerate(media):
            runs = list(zip(placed.runs, placed.item.plan.runs, strict=False))
            sound = (
                self._readers.get(placed.item.modality) is placed.item.reader
                and end <= placed.start < placed.stop <= len(ids)
                and (placed.start, placed.stop) == (placed.runs[0].start, placed.runs[-1].stop)
                and len(placed.runs) == len(placed.item.plan.runs)
                and all(
                    set(ids[run.start : run.stop]) == {self._token_id(soft.token)}
                    and run.stop - run.start == soft.count
                    for run, soft in runs
                )
            )
            if not sound:
                raise RequestError(
                    f"media[{number}] does not stand where the prompt says.",
                    field="media",
                    hint="Make prompts with `encode` of the engine that runs them, and leave them "
                    "as they are.",
                )
            end = placed.stop

    # Placing.

    def places(self, text: str) -> int:
        """How many placeholders a text holds."""
        return len(self._places.findall(text))

    def masks(self, texts: Iterable[str]) -> Masks:
        """What to put in the place of placeholders that stand in texts as words of their own."""
        said = "".join(texts)
        found = dict.fromkeys(self._places.findall(said))
        mark = "\ue000"
        while mark in said:
            mark += "\ue000"
        return Masks({token: f"{mark}{place}\ue001" for place, token in enumerate(found)})

    def expand(
        self,
        text: str,
        items: Sequence[MediaItem] = (),
        *,
        add_special_tokens: bool = False,
        partly: bool = False,
        masks: Masks | None = None,
    ) -> Expanded:
        """Encode a text, each placeholder as what the item in its place comes to.

        Args:
            text: as a template rendered it.
            items: in their order.
            add_special_tokens: whether to add those of the tokenizer, such as BOS.
            partly: whether the text may hold fewer places than there are items, the first ones.
            masks: what stands in the text for placeholders that are words.

        Raises:
            TemplateError: there are not as many places as items, or in another order.
        """
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
        pieces = ["".join(parts)] if masks is None else masks.apart("".join(parts))
        ids = [
            token
            for number, piece in enumerate(pieces)
            for token in self._tokenizer.encode(
                piece, add_special_tokens=add_special_tokens and not number
            )
        ]
        return self._fill(ids, runs, items) if runs else Expanded(tuple(ids))

    def _check(
        self, places: Sequence[re.Match[str]], items: Sequence[MediaItem], *, partly: bool
    ) -> None:
        shown: list[Modality] = [self._modalities[place.group()] for place in places]
        wanted: list[Modality] = [item.modality for item in items]
        if shown == wanted or (partly and shown == wanted[: len(shown)]):
            return
        tokens = " or ".join(repr(token) for token in self._modalities)
        raise TemplateError(
            f"There are {_counted(wanted)}, and the text has places for {_counted(shown)}.",
            reason="media and their places differ",
            hint="The chat template does not show all media in order; or, in a plain text, "
            f"{tokens} has to stand where each of them belongs.",
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
