"""A session: one sequence that a caller appends to and lets the model go on with, step by step."""

from __future__ import annotations

import threading
from concurrent.futures import wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import mlx.core as mx
import numpy as np

from phyla.engine.answer import Answer
from phyla.engine.flush import Flush
from phyla.engine.strand import NO_TOKEN, Appending, Continuing
from phyla.engine.stream import Stream
from phyla.errors import (
    BusyError,
    CancelledError,
    ContextOverflowError,
    EmptyInputError,
    RequestError,
)
from phyla.messages import Audio, Image, Video, read_messages
from phyla.options import read_options
from phyla.prompt import Prompt, read_ids
from phyla.validation import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

    from numpy.typing import ArrayLike, NDArray
    from typing_extensions import Self

    from phyla.engine.encoder import Encoder
    from phyla.engine.machine import Machine
    from phyla.engine.media import MediaItem, PlacedMedia
    from phyla.engine.resolve import ResolvedOptions
    from phyla.engine.strand import Strand
    from phyla.events import Event, Reply
    from phyla.family import ThinkingLike
    from phyla.hooks import LogitsProcessor
    from phyla.messages import Medium, Message, MessagesLike, ToolLike
    from phyla.options import Options, OptionsLike


@dataclass(frozen=True)
class Settled:
    """A request's options with nothing left open, and what changes its logits."""

    options: ResolvedOptions
    processors: Sequence[LogitsProcessor]

    def with_seed(self, seed: int) -> Settled:
        """The same with another seed."""
        return replace(self, options=replace(self.options, seed=seed))

    def alike(self, other: Settled) -> bool:
        """Whether both make one reply, apart from its length."""
        without = replace(self.options, max_tokens=None)
        return without == replace(other.options, max_tokens=None)


@dataclass(frozen=True)
class Surroundings:
    """What sessions of one engine share.

    Attributes:
        owner: the engine, kept alive for as long as a session is.
        settle: settles options.
        finished: is told of every reply.
    """

    owner: object
    machine: Machine
    encoder: Encoder
    settle: Callable[[Options], Settled]
    finished: Callable[[Reply], None]


class Session:
    """A stateful cursor over one sequence; `Engine.session` makes it. A context manager.

    What is appended is read at once, in chunks; `generate` and `stream` go on from there. Every
    method may be called from any thread, one at a time: while one works the others raise
    `BusyError`, except `position`, `cancel` and `clear_cancel`. Whatever is asked for is checked
    before anything changes, so an error leaves the session as it was.
    """

    def __init__(
        self,
        surroundings: Surroundings,
        strand: Strand,
        *,
        options: Options,
    ) -> None:
        self._surroundings = surroundings
        self._machine = surroundings.machine
        self._strand = strand
        self._options = options
        self._cancelled = threading.Event()
        self._working = threading.Lock()
        self._closed = False
        self._unread: tuple[int, ...] = ()
        self._unread_embeddings: NDArray[np.float32] | None = None
        self._unread_media: tuple[PlacedMedia, ...] = ()
        # The conversation, as far as it came by `append_chat`, and the turn that is being made.
        self._messages: list[Message] = []
        self._items: tuple[MediaItem, ...] = ()
        self._prompt = Prompt(ids=())
        self._answer: Answer | None = None
        self._settled: Settled | None = None

    # Where it stands.

    @property
    def position(self) -> int:
        """How many tokens the session holds; may be read while it works."""
        return self._strand.position

    @property
    def max_seq_len(self) -> int:
        """How many it may hold."""
        return self._strand.max_seq_len

    @property
    def tokens(self) -> tuple[int, ...]:
        """Their ids; -1 where embeddings were appended."""
        return tuple(self._strand.ids)

    @property
    def unread(self) -> tuple[int, ...]:
        """What a cancelled append left unread: append it, or `reset`, before anything else.

        It holds -1 for each of the embeddings that were left; append those.
        """
        return self._unread

    # Appending.

    def append_tokens(self, ids: Sequence[int]) -> int:
        """Append token ids; returns the position after them.

        Raises:
            ContextOverflowError: they do not fit.
            CancelledError: `cancel` was called; what was read until then stays, and `unread` holds
                the rest.
            RequestError: an id is outside the vocabulary, or others are to be appended first.
        """
        prompt = read_ids(ids, self._machine.loaded.runtime.vocab_size)
        with self._work():
            return self._append(prompt)

    def append_text(self, text: str, *, add_special_tokens: bool | None = None) -> int:
        """Append plain text; returns the position after it.

        Args:
            text: goes through the tokenizer as it is.
            add_special_tokens: whether to add the tokenizer's own, such as BOS; at the beginning
                only, when absent.

        Raises:
            PhylaError: as `append_tokens` raises it.
        """
        if not isinstance(text, str):
            raise RequestError(
                f"text should be a string; found {shown(text)}.",
                field="text",
                expected="a string",
                found=text,
            )
        if add_special_tokens not in (None, True, False):
            raise RequestError(
                "add_special_tokens should be True, False or None; found "
                f"{shown(add_special_tokens)}.",
                field="add_special_tokens",
                expected="True, False or None",
                found=add_special_tokens,
            )
        begins = self.position == 0 if add_special_tokens is None else add_special_tokens
        return self.append_tokens(
            self._machine.loaded.runtime.voice.tokenizer.encode(text, add_special_tokens=begins)
        )

    def append_embeddings(self, embeddings: ArrayLike | mx.array) -> int:
        """Append hidden states `[T, D]` in the place of embedded tokens; returns the position.

        They enter the first layer as they are; a family that scales its embeddings does not scale
        these.

        Raises:
            PhylaError: as `append_tokens` raises it.
            RequestError: the array has another shape, or holds what is no number; or the model has
                embeddings for each layer (Gemma 4 E2B and E4B).
        """
        if self._strand.runtime.model.needs_ids:
            raise RequestError(
                "This model's layers look up the tokens' ids, which embeddings do not have.",
                field="embeddings",
                hint="Append tokens or text.",
            )
        values = _floats(embeddings)
        width = self._strand.width
        if values.ndim != 2 or values.shape[1] != width or not len(values):
            raise RequestError(
                f"embeddings should have the shape [T, {width}]; found {list(values.shape)}.",
                field="embeddings",
                expected=f"[T, {width}]",
                found=tuple(values.shape),
            )
        with self._work():
            return self._append(Prompt(ids=()), embeddings=values)

    def append_chat(
        self,
        messages: MessagesLike,
        *,
        tools: Sequence[ToolLike] | None = None,
        thinking: ThinkingLike = None,
    ) -> int:
        """Append messages and the opening of a reply, by the checkpoint's template.

        The first call takes the beginning of a conversation; a later one what follows the reply
        that was generated since, and nothing that the session holds already.

        Raises:
            PhylaError: as `append_tokens` and `Engine.encode` raise it.
            RequestError: no reply was generated since the last messages.
        """
        following = read_messages(messages)
        with self._work():
            encoder = self._surroundings.encoder
            if not self._messages:
                prompt = encoder.encode(following, tools=tools, thinking=thinking)
                earlier: list[Message] = []
            else:
                if self._answer is None or not self._answer.tokens:
                    raise RequestError(
                        "The session waits for a reply to the messages before.",
                        field="messages",
                        hint="Generate one first, or append all messages in one call.",
                    )
                earlier = [*self._messages, self._answer.message]
                prompt = encoder.follow_up(
                    self._messages, following, tools=tools, thinking=thinking, held=self._items
                )
                prompt = self._after_reply(prompt)
            items = (*self._items, *(placed.item for placed in prompt.media))
            return self._append(prompt, messages=[*earlier, *following], items=items)

    def append_image(self, source: object, *, max_tokens: int | None = None) -> int:
        """Append an image, with what the model's template puts around one; returns the position.

        Args:
            source: see `phyla.media`.
            max_tokens: the most tokens that it may take; None leaves it to the model.

        Raises:
            UnsupportedModalityError: the model reads no images.
            MediaError: the image cannot be read.
            PhylaError: as `append_tokens` raises it.
        """
        return self._append_medium(_block(Image, source=source, max_tokens=max_tokens))

    def append_audio(
        self, source: object, *, rate: int | None = None, max_tokens: int | None = None
    ) -> int:
        """Append sound; see `append_image`. `rate` is that of an array of samples."""
        return self._append_medium(_block(Audio, source=source, rate=rate, max_tokens=max_tokens))

    def append_video(
        self,
        source: object,
        *,
        fps: float | None = None,
        max_frames: int | None = None,
        source_fps: float | None = None,
        max_tokens: int | None = None,
    ) -> int:
        """Append the frames of a video; see `append_image`.

        Args:
            source: see `phyla.media`.
            fps: how many frames of each second to look at; None leaves it to the model.
            max_frames: the most frames to look at.
            source_fps: frames a second of a source that is an array or a list of pictures.
            max_tokens: the most tokens that the video may take.
        """
        block = _block(
            Video,
            source=source,
            fps=fps,
            max_frames=max_frames,
            source_fps=source_fps,
            max_tokens=max_tokens,
        )
        return self._append_medium(block)

    # Generating.

    def stream(
        self,
        options: OptionsLike = None,
        *,
        flush_tokens: int = 1,
        flush_seconds: float | None = None,
    ) -> Stream:
        """Let the model go on, and return the handle of what it says.

        A call that follows another without anything appended in between goes on with the same
        reply: with the same seed, both together say what one longer call would have said. A call
        that gives no seed keeps that of the call before. What may still become a marker or a
        character is withheld for the next call if `max_tokens` ends this one.

        Args:
            options: how the reply is generated.
            flush_tokens: hand out text once so many tokens have come.
            flush_seconds: or, when a token comes, once so much time has passed.

        Raises:
            EmptyInputError: the session holds nothing.
            ContextOverflowError: it is full.
            RequestError: what a cancelled append left is not yet appended, or an option is wrong.
        """
        flush = Flush(tokens=flush_tokens, seconds=flush_seconds)
        wanted = read_options(options).over(self._options)
        settled = self._surroundings.settle(wanted)
        self._start_work()
        try:
            self._check_cancelled()
            self._check_unread(())
            if not self._strand.ids:
                raise EmptyInputError(
                    "The session is empty.", field="session", hint="Append something first."
                )
            if not self._strand.can_shift:
                self._check_room(1)
            before = self._settled
            if wanted.seed is None and before is not None and self._answer is not None:
                settled = settled.with_seed(before.options.seed)
            channel = self._machine.channel()
            answer = self._voiced(settled)

            def begin() -> None:
                self._settled, self._answer = settled, answer

            task = Continuing(
                self._strand,
                answer,
                settled.options,
                channel,
                flush,
                cancelled=self._cancelled.is_set,
                begun=begin,
                finished=self._surroundings.finished,
                done=self._working.release,
            )
            self._machine.run(task)
        except BaseException:
            self._working.release()
            raise
        return Stream(channel, self)

    def generate(
        self,
        options: OptionsLike = None,
        *,
        sink: Callable[[Event], object] | None = None,
        flush_tokens: int = 1,
        flush_seconds: float | None = None,
    ) -> Reply:
        """Let the model go on and wait for the end; the arguments are those of `stream`.

        `sink` is given every event as it comes, on the caller's thread.
        """
        if sink is not None and not callable(sink):
            raise RequestError(
                f"sink should be a function of an event; found {shown(sink)}.",
                field="sink",
                expected="a function",
                found=sink,
            )
        stream = self.stream(options, flush_tokens=flush_tokens, flush_seconds=flush_seconds)
        try:
            for event in stream:
                if sink is not None:
                    sink(event)
            return stream.result()
        except BaseException:
            # Of the sink, or a signal: the caller is to find the session at rest.
            stream.close()
            with suppress(Exception):
                stream.result()
            raise

    # Control.

    def cancel(self) -> None:
        """End what is running, within one chunk or token; and refuse work until `clear_cancel`."""
        self._cancelled.set()

    def clear_cancel(self) -> None:
        """Work again."""
        self._cancelled.clear()

    def reset(self) -> None:
        """Forget everything."""
        with self._work(cancellable=False):
            strand = self._strand
            self._machine.call(strand.clear)
            self._unread, self._unread_embeddings, self._unread_media = (), None, ()
            self._begin_turn(Prompt(ids=()), (), ())

    def fork(self) -> Session:
        """A session that begins with what this one holds; neither changes the other.

        Nothing is copied until one of both goes on.
        """
        with self._work(cancellable=False):
            loaded, own = self._machine.loaded, self._strand

            def make() -> Strand:
                strand = own.fork()
                loaded.scheduler.hold(strand)
                return strand

            strand = self._machine.call(make)
            other = Session(self._surroundings, strand, options=self._options)
            answer = None
            if self._answer is not None and self._settled is not None:
                answer = self._answer.continued(self._settled.options, self._settled.processors)
            other.__dict__.update(
                _unread=self._unread,
                _unread_embeddings=self._unread_embeddings,
                _unread_media=self._unread_media,
                _items=self._items,
                _messages=list(self._messages),
                _prompt=self._prompt,
                _answer=answer,
                _settled=self._settled,
            )
            return other

    def close(self) -> None:
        """Give the memory back; what is running is cancelled. The session is of no use after."""
        self._cancelled.set()
        with self._working:  # What runs ends by itself now.
            self._closed = True
            try:
                self._machine.call(self._strand.close)
            except BusyError:
                self._strand.close()  # The engine is closed, and its thread with it.

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # Inside.

    def _append(
        self,
        prompt: Prompt,
        *,
        messages: Sequence[Message] | None = None,
        items: tuple[MediaItem, ...] | None = None,
        embeddings: NDArray[np.float32] | None = None,
    ) -> int:
        """Read a prompt or embeddings; `messages` are the conversation so far, `items` its media."""
        self._surroundings.encoder.media.check(prompt.ids, prompt.media)
        if embeddings is None:
            self._check_unread(prompt.ids)
            self._check_room(
                len(prompt.ids), media=sum(each.item.plan.count for each in prompt.media)
            )
        else:
            self._check_unread((NO_TOKEN,) * len(embeddings), embeddings)
            self._check_room(len(embeddings))
        for each in prompt.media:
            each.item.prepare()
        ids, placed = prompt.ids, self._placed(prompt)
        if self._unread:
            # What a cancelled append left belongs to the turn that it began.
            prompt, messages, items = self._prompt, self._messages, self._items
        task = Appending(self._strand, ids, embeddings, self._is_cancelled, placed)
        self._machine.run(task)
        try:
            task.ended.result()
        except BaseException:
            # Its own error; or a signal, and then the caller is to find the session at rest.
            task.stopped.set()
            wait([task.ended])
            raise
        finally:
            if task.read_any:
                self._begin_turn(
                    prompt,
                    self._messages if messages is None else messages,
                    self._items if items is None else items,
                )
                self._unread = unread = task.unread
                self._unread_media = task.unread_media
                left = None if embeddings is None or not unread else embeddings[-len(unread) :]
                self._unread_embeddings = left
        return self.position

    def _append_medium(self, block: Medium) -> int:
        with self._work():
            desk = self._surroundings.encoder.media
            held = [placed.item for placed in self._strand.media]
            item = desk.open_blocks([block], held=held)[0]
            expanded = desk.expand(desk.wrapped(item), [item])
            return self._append(Prompt(ids=expanded.ids, media=expanded.media))

    def _placed(self, prompt: Prompt) -> tuple[PlacedMedia, ...]:
        """The media of a prompt as they will stand here, behind what a cancel left unread of them.

        Raises:
            RequestError: what the prompt begins with is not what was left.
        """
        position = self.position
        placed = tuple(each.moved(position) for each in prompt.media)
        left, edge = self._unread_media, position + len(self._unread)
        again = [each for each in placed if each.start < edge]
        # The ids alone stand for what was left; media that come with them have to be the same.
        if again and [_told(each) for each in again] != [_told(each) for each in left]:
            raise self._unread_error()
        return (*left, *placed[len(again) :])

    def _begin_turn(
        self, prompt: Prompt, messages: Sequence[Message], items: tuple[MediaItem, ...]
    ) -> None:
        self._prompt, self._messages, self._items = prompt, list(messages), items
        self._answer = self._settled = None

    def _voiced(self, settled: Settled) -> Answer:
        """The turn's reply, ready to go on."""
        answer, before = self._answer, self._settled
        if answer is None or before is None:
            voice = self._machine.loaded.runtime.voice
            return Answer(voice, self._prompt, settled.options, processors=settled.processors)
        if before.alike(settled) and not answer.stopped:
            return answer
        return answer.continued(settled.options, settled.processors)

    def _after_reply(self, prompt: Prompt) -> Prompt:
        """What follows the reply, without the end of turn if the model has said it already."""
        voice = self._machine.loaded.runtime.voice
        last = self._strand.ids[-1]
        if last not in voice.eos or prompt.ids[:1] != (last,):
            return prompt
        return replace(
            prompt,
            ids=prompt.ids[1:],
            text=prompt.text.removeprefix(voice.tokenizer.token_text(last)),
            media=tuple(placed.moved(-1) for placed in prompt.media),
        )

    # Checks.

    def _check_room(self, count: int, *, media: int = 0) -> None:
        room = self.max_seq_len - self.position
        if count > room:
            raise ContextOverflowError(
                limit=self.max_seq_len, excess=count - room, session=True, media=media
            )

    def _check_unread(
        self, ids: Sequence[int], embeddings: NDArray[np.float32] | None = None
    ) -> None:
        unread, left = self._unread, self._unread_embeddings
        same = tuple(ids[: len(unread)]) == unread
        if same and left is not None and embeddings is not None:
            same = np.array_equal(embeddings[: len(unread)], left)
        if not same:
            raise self._unread_error()

    def _unread_error(self) -> RequestError:
        return RequestError(
            f"A cancelled append left {len(self._unread)} tokens unread.",
            field="session",
            hint="Append session.unread first, or reset the session.",
        )

    def _check_cancelled(self) -> None:
        if self._cancelled.is_set():
            raise CancelledError("The session was cancelled.", hint="Call clear_cancel() to go on.")

    def _is_cancelled(self) -> bool:
        return self._cancelled.is_set() or self._machine.closing.is_set()

    def _start_work(self) -> None:
        if self._closed:
            raise BusyError("The session is closed.", hint="Make another one.")
        if not self._working.acquire(blocking=False):
            raise BusyError(
                "The session is working.", hint="Wait for its reply, or cancel it first."
            )

    @contextmanager
    def _work(self, *, cancellable: bool = True) -> Iterator[None]:
        """Keep others out for a while."""
        self._start_work()
        try:
            if cancellable:
                self._check_cancelled()
            yield
        finally:
            self._working.release()


def _told(placed: PlacedMedia) -> tuple[bytes, int, int]:
    return placed.item.digest, placed.start, placed.stop


_M = TypeVar("_M", Image, Audio, Video)


def _block(kind: type[_M], **fields: object) -> _M:
    """A block for a medium that was passed as arguments.

    Raises:
        RequestError: one of them is out of range.
    """
    message = {"role": "user", "content": [{"type": kind.__name__.lower(), **fields}]}
    block = read_messages(message)[0].media[0]
    assert isinstance(block, kind)
    return block


def _floats(values: ArrayLike | mx.array) -> NDArray[np.float32]:
    """Real numbers in memory of their own."""
    if isinstance(values, mx.array):
        values = np.array(values if values.dtype == mx.complex64 else values.astype(mx.float32))
    try:
        listed = np.asarray(values)
        if listed.dtype.kind not in "biuf":
            raise TypeError
        floats = np.array(listed, dtype=np.float32)
        if np.isfinite(floats).all():
            return floats
    except (TypeError, ValueError):
        pass
    raise RequestError(
        f"embeddings should be an array of numbers; found {shown(values)}.",
        field="embeddings",
        expected="[T, D]",
        found=values,
    )
