"""A session: one sequence that a caller appends to and lets the model go on with, step by step."""

from __future__ import annotations

import threading
from concurrent.futures import wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from phyla.engine.flush import Flush
from phyla.engine.session_input import read_block, read_embeddings
from phyla.engine.strand import NO_TOKEN, Appending, Continuing
from phyla.engine.stream import Stream
from phyla.engine.turn import Turn, after_reply
from phyla.engine.unread import Unread
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
from phyla.validation import check_text, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

    import mlx.core as mx
    import numpy as np
    from numpy.typing import ArrayLike, NDArray
    from typing_extensions import Self

    from phyla.engine.encoder import Encoder
    from phyla.engine.machine import Machine
    from phyla.engine.strand import Strand
    from phyla.engine.turn import Settled
    from phyla.events import Event, Reply
    from phyla.family import ThinkingLike
    from phyla.messages import Medium, Message, MessagesLike, ToolLike
    from phyla.options import Options, OptionsLike


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
        self._unread = Unread()
        self._turn = Turn.empty()

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
        return self._unread.ids

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
        check_text("text", text)
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
        values = read_embeddings(embeddings, self._strand.width)
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
            turn = self._turn
            if not turn.messages:
                prompt = encoder.encode(following, tools=tools, thinking=thinking)
                earlier: tuple[Message, ...] = ()
            else:
                if turn.said is None:
                    raise RequestError(
                        "The session waits for a reply to the messages before.",
                        field="messages",
                        hint="Generate one first, or append all messages in one call.",
                    )
                earlier = (*turn.messages, turn.said)
                prompt = encoder.follow_up(
                    turn.messages, following, tools=tools, thinking=thinking, held=turn.items
                )
                voice = self._machine.loaded.runtime.voice
                prompt = after_reply(prompt, self._strand.ids[-1], voice)
            items = (*turn.items, *(placed.item for placed in prompt.media))
            return self._append(prompt, turn=Turn(prompt, (*earlier, *following), items))

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
        return self._append_medium(read_block(Image, source=source, max_tokens=max_tokens))

    def append_audio(
        self, source: object, *, rate: int | None = None, max_tokens: int | None = None
    ) -> int:
        """Append sound; see `append_image`. `rate` is that of an array of samples."""
        return self._append_medium(
            read_block(Audio, source=source, rate=rate, max_tokens=max_tokens)
        )

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
        block = read_block(
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
            self._unread.check(())
            if not self._strand.ids:
                raise EmptyInputError(
                    "The session is empty.", field="session", hint="Append something first."
                )
            if not self._strand.can_shift:
                self._check_room(1)
            turn = self._turn
            if wanted.seed is None:
                settled = turn.with_seed_of_reply(settled)
            channel = self._machine.channel()
            answer = turn.voiced(settled, self._machine.loaded.runtime.voice)

            def begin() -> None:
                self._turn = turn.answered(answer, settled)

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
            if sink is not None:
                for event in stream:
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
            self._unread, self._turn = Unread(), Turn.empty()

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
            other._unread, other._turn = self._unread, self._turn.forked()
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
        turn: Turn | None = None,
        embeddings: NDArray[np.float32] | None = None,
    ) -> int:
        """Read a prompt or embeddings, which begin a turn."""
        self._surroundings.encoder.media.check(prompt.ids, prompt.media)
        ids = prompt.ids if embeddings is None else (NO_TOKEN,) * len(embeddings)
        self._unread.check(ids, embeddings)
        self._check_room(len(ids), media=sum(each.item.plan.count for each in prompt.media))
        for each in prompt.media:
            each.item.prepare()
        placed = self._unread.placed(prompt, self.position)
        if self._unread.ids:
            # What a cancelled append left belongs to the turn that it began.
            turn = self._turn.unanswered()
        elif turn is None:
            turn = self._turn.then(prompt)
        task = Appending(self._strand, prompt.ids, embeddings, self._is_cancelled, placed)
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
                left = task.unread
                rest = None if embeddings is None or not left else embeddings[-len(left) :]
                self._turn, self._unread = turn, Unread(left, rest, task.unread_media)
        return self.position

    def _append_medium(self, block: Medium) -> int:
        with self._work():
            desk = self._surroundings.encoder.media
            held = [placed.item for placed in self._strand.media]
            item = desk.open_blocks([block], held=held)[0]
            expanded = desk.expand(desk.wrapped(item), [item])
            return self._append(Prompt(ids=expanded.ids, media=expanded.media))

    # Checks.

    def _check_room(self, count: int, *, media: int = 0) -> None:
        room = self.max_seq_len - self.position
        if count > room:
            raise ContextOverflowError(
                limit=self.max_seq_len, excess=count - room, session=True, media=media
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
