"""The sequence of a session, and the tasks that read into it and write on; all on one thread."""

from __future__ import annotations

import threading
import time
from collections import deque
from concurrent.futures import Future
from typing import TYPE_CHECKING

import mlx.core as mx

from phyla.engine.caches import EmptyCache
from phyla.engine.decode import Line
from phyla.engine.features import NO_MEDIA, positions_of
from phyla.engine.sampling import Sampler
from phyla.engine.scheduler import Task
from phyla.engine.tape import own
from phyla.errors import BusyError, CancelledError
from phyla.events import Finished
from phyla.family import Step

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from phyla.engine.answer import Answer
    from phyla.engine.decode import Cursor
    from phyla.engine.features import MediaFeed
    from phyla.engine.flush import Flush
    from phyla.engine.generation import Runtime
    from phyla.engine.layers import Layers
    from phyla.engine.media import PlacedMedia
    from phyla.engine.resolve import ResolvedOptions
    from phyla.engine.sampling import Sampled
    from phyla.engine.stream import Channel
    from phyla.events import Event, FinishReason, Reply

# Stands for a token where embeddings were fed.
NO_TOKEN = -1

# Tokens of a reply that are set aside at once.
_REPLY = 512

# A reply that no room limits.
_ENDLESS = 2**31


class Strand:
    """What a session holds.

    The last token is mostly not fed yet: it is when something follows, so that nothing is computed
    which nobody asks for.

    Args:
        runtime: the model.
        max_seq_len: how many tokens it may hold.
        n_keep: how many tokens at its beginning outlive a context shift; None for no shift.
        layers: what it begins with, `ids` having been fed.
        ids: see there.
        media: those among them.

    Attributes:
        ids: all tokens, in order.
        logits: `[V]`, those after all of `ids`, where all of them were fed.
        media: the images, audio and videos among them, the last one perhaps read in part.
        asked: the tokens before the reply that is being made, also those that were forgotten since.
        forced: the tokens that the reply has to go on with.
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        max_seq_len: int,
        n_keep: int | None,
        layers: Layers | None = None,
        ids: Sequence[int] = (),
        media: Sequence[PlacedMedia] = (),
    ) -> None:
        self._runtime: Runtime | None = runtime
        self.max_seq_len = max_seq_len
        self.n_keep = n_keep
        self.ids = list(ids)
        self.media = tuple(media)
        self._feed: MediaFeed | None = runtime.feed(self.media)
        self.logits: mx.array | None = None
        self.asked: list[int] = []
        self.forced: deque[int] = deque()
        self._cursor: Cursor | None = runtime.cursor(
            layers or runtime.allocation.layers(), extent=max_seq_len, reserve=0
        )
        one = Step(
            ids=mx.zeros((1, 1), mx.int32), positions=mx.zeros((1, 1), mx.int32), extents=(1,)
        )
        self.width: int = runtime.model.embed(one).shape[-1]

    @property
    def runtime(self) -> Runtime:
        """The model.

        Raises:
            BusyError: the strand is closed.
        """
        if self._runtime is None:
            raise _closed()
        return self._runtime

    @property
    def cursor(self) -> Cursor:
        """What the model remembers of it.

        Raises:
            BusyError: the strand is closed.
        """
        if self._cursor is None:
            raise _closed()
        return self._cursor

    @property
    def position(self) -> int:
        """How many tokens it holds."""
        return len(self.ids)

    @property
    def unfed(self) -> list[int]:
        """The tokens that the layers have not seen."""
        return self.ids[self.cursor.length :]

    @property
    def nbytes(self) -> int:
        return 0 if self._cursor is None else self._cursor.layers.nbytes

    def place(self, media: Sequence[PlacedMedia], ids: Sequence[int]) -> None:
        """Say what media there are, now that the sequence is to hold these ids."""
        self.media = tuple(media)
        self._feed = self.runtime.feed(self.media)
        self.cursor.positions = positions_of(self.runtime.model, ids, self.media)

    def read(self, ids: Sequence[int], stop: int, *, last: bool) -> mx.array | None:
        """Feed the next of `ids` up to `stop`, or up to the end of a picture that lies there.

        Where a tower has to run first, one of them runs instead. With `last`, and if all of `ids`
        was fed, the logits `[V]` after them.
        """
        cursor, start, media = self.cursor, self.cursor.length, NO_MEDIA
        stop = min(stop, len(ids))
        if self._feed is not None:
            stop = self._feed.whole(start, stop)
            if self._feed.look(start, stop):
                return None
            media = self._feed.chunk(start, stop)
        return cursor.feed(ids[start:stop], last=last and stop == len(ids), media=media)

    def clear(self) -> None:
        """Forget everything."""
        self.ids, self.logits, self.asked = [], None, []
        self.media, self._feed = (), None
        self.forced.clear()
        self._unfeed()

    def close(self) -> None:
        """Give the memory back, and let go of the model."""
        self.ids, self.logits, self.asked = [], None, []
        self._cursor = self._runtime = self._feed = None
        self.media = ()

    def mend(self) -> None:
        """After a failure, forget what the layers may hold beyond `ids`, or hold only in part."""
        ids, layers = self.ids, self.cursor.layers
        lengths = {s.length for s in layers.stores if not isinstance(s, EmptyCache)}
        if self.logits is not None:
            most = len(ids)
        elif ids and ids[-1] == NO_TOKEN:
            # What comes next would be drawn from logits that only an embedding leads to.
            self.clear()
            return
        else:
            most = max(0, len(ids) - 1)
            if self._feed is not None:
                most = max(0, self._feed.whole(-1, most))
        length = min(most, *lengths)
        if lengths == {length}:
            return
        if length < len(ids):
            self.logits = None
        if layers.floor <= length:
            layers.cut(length)
        elif NO_TOKEN in ids:
            self.clear()  # What was embedded cannot be read again.
        else:
            self._unfeed()

    def _unfeed(self) -> None:
        self._cursor = self.runtime.cursor(
            self.runtime.allocation.layers(),
            extent=self.max_seq_len,
            reserve=0,
            positions=positions_of(self.runtime.model, self.ids, self.media),
        )

    def fork(self) -> Strand:
        """The same once more; memory is shared until one of both goes on."""
        layers = self.cursor.layers
        other = Strand(
            self.runtime,
            max_seq_len=self.max_seq_len,
            n_keep=self.n_keep,
            layers=layers.fork(layers.length),
            ids=self.ids,
            media=self.media,
        )
        other.cursor.positions = self.cursor.positions
        other.logits, other.asked = self.logits, self.asked
        other.forced = self.forced.copy()
        return other

    @property
    def can_shift(self) -> bool:
        """Whether the sequence makes room by itself where it is full."""
        model, layers = self.runtime.model, self.cursor.layers
        moves = model.rotates_keys and layers.can_shift and not self.media
        return self.n_keep is not None and moves

    def shift(self) -> None:
        """Forget half of what follows the first `n_keep` tokens; the rest moves up."""
        assert self.n_keep is not None
        start = self.n_keep
        stop = start + max(1, (len(self.ids) - start) // 2)
        self.cursor.layers.drop(start, stop, self.runtime.model.rotate_keys)
        del self.ids[start:stop]


class _StrandTask(Task):
    """A task on a strand; what it needs is what the strand is going to take beyond what it has."""

    def __init__(self, strand: Strand, target: int) -> None:
        self._strand = strand
        self._target = target

    @property
    def needed(self) -> int:
        return max(0, self._strand.runtime.nbytes(self._target) - self._strand.nbytes)


class Appending(_StrandTask):
    """Reads tokens or embeddings into a strand.

    Args:
        strand: grows.
        ids: the tokens; or
        embeddings: `[T, D]`, what comes instead.
        media: those among the tokens, placed within the whole sequence.
        cancelled: whether to stop between two chunks.

    Attributes:
        ended: done, or the error; after any but a cancel the strand is as it was.
        stopped: set it to cancel this append alone.
        unread: what was not read because of a cancel.
    """

    def __init__(
        self,
        strand: Strand,
        ids: Sequence[int],
        embeddings: NDArray[np.float32] | None,
        cancelled: Callable[[], bool],
        media: Sequence[PlacedMedia] = (),
    ) -> None:
        count = len(ids) if embeddings is None else len(embeddings)
        super().__init__(strand, strand.position + count)
        self.ended: Future[None] = Future()
        self.stopped = threading.Event()
        self._before, self._logits = strand.position, strand.logits
        # One that was begun before comes again with the rest of its tokens.
        before = [placed for placed in strand.media if placed.stop <= strand.position]
        self._media = tuple(
            placed.numbered(number) for number, placed in enumerate((*before, *media))
        )
        self._media_before = strand.media
        self._begun = False
        self._all = [*strand.ids, *(ids if embeddings is None else [NO_TOKEN] * count)]
        self._embeddings = embeddings
        self._is_cancelled = cancelled

    @property
    def cancelled(self) -> bool:
        return self.stopped.is_set() or self._is_cancelled()

    @property
    def read_any(self) -> bool:
        """Whether it has ended in any way but an error that left the strand as it was."""
        error = self.ended.exception()
        return error is None or isinstance(error, CancelledError)

    @property
    def unread(self) -> tuple[int, ...]:
        return tuple(self._all[self._strand.position :])

    @property
    def unread_media(self) -> tuple[PlacedMedia, ...]:
        """What of the media was not read, or not to its end."""
        return tuple(placed for placed in self._media if placed.stop > self._strand.position)

    def begin(self) -> None:
        self._begun = True
        strand = self._strand
        strand.cursor.layers.reserve(len(self._all))
        if self._media:
            strand.place(self._media, self._all)

    def read(self, chunk: int) -> bool:
        strand, cursor = self._strand, self._strand.cursor
        start, count = cursor.length, len(self._all)
        # What cannot be embedded again later is read to its end, and leaves logits.
        ends_whole = self._embeddings is not None or (
            bool(self._media) and self._media[-1].stop == count
        )
        if self._embeddings is None or start < self._before:
            end = self._before if self._embeddings is not None else count
            end -= not ends_whole
            stop = min(start + chunk, end)
            if start < stop:
                strand.logits = strand.read(self._all, stop, last=ends_whole)
        else:
            stop = min(start + chunk, count)
            values = mx.array(self._embeddings[start - self._before : stop - self._before])
            ids = [0] * (stop - start)
            strand.logits = cursor.feed(ids, last=stop == count, embeddings=values)
        if strand.logits is not None:
            mx.eval(strand.logits, cursor.layers.arrays)
        fed = cursor.length
        if fed < (count if ends_whole else count - 1):
            strand.ids = self._all[: max(self._before, fed)]
            return True
        strand.ids = list(self._all)
        if strand.unfed:
            strand.logits = None
        return False

    def end(self, reason: FinishReason) -> None:
        strand = self._strand
        strand.forced.clear()
        if reason == "cancelled":
            left = len(self.unread)
            if self._media:
                begun = [placed for placed in self._media if placed.start < strand.position]
                strand.place(begun, strand.ids)
            error = CancelledError(
                f"Cancelled with {left} tokens unread.",
                hint="Call clear_cancel() and append session.unread, or reset the session.",
            )
            self.ended.set_exception(error)
        else:
            self.ended.set_result(None)

    def fail(self, error: BaseException, *, sound: bool = True) -> None:
        try:
            if self._begun:
                strand = self._strand
                strand.ids, strand.logits = self._all[: self._before], self._logits
                if self._media:
                    strand.place(self._media_before, strand.ids)
                strand.mend()
        finally:
            self.ended.set_exception(error)


class Continuing(_StrandTask):
    """Writes on at the end of a strand.

    Args:
        strand: grows.
        answer: the reply of the turn.
        options: how to go on.
        channel: where events go.
        flush: how many of them at once.
        cancelled: whether to stop.
        begun: called when there is room for it.
        finished: told of the reply.
        done: called at the end, whatever it is, before that is told.
    """

    def __init__(
        self,
        strand: Strand,
        answer: Answer,
        options: ResolvedOptions,
        channel: Channel,
        flush: Flush,
        *,
        cancelled: Callable[[], bool],
        begun: Callable[[], object],
        finished: Callable[[Reply], None],
        done: Callable[[], object],
    ) -> None:
        room = _ENDLESS if strand.can_shift else strand.max_seq_len - strand.position
        wanted = options.max_tokens
        self._limit = room if wanted is None else min(wanted, room)
        self._most = min(strand.max_seq_len, strand.position + self._limit)
        super().__init__(strand, min(self._most, strand.position + _REPLY))
        self._answer = answer
        self._options = options
        self._channel = channel
        self._flush = flush
        self._is_cancelled = cancelled
        self._begun = begun
        self._finished = finished
        self._done: Callable[[], object] | None = done
        self._submitted = time.perf_counter()
        self._started = self._submitted
        self._stopped = False
        self._before = strand.position
        answer.resume(self._emit)

    @property
    def cancelled(self) -> bool:
        return self._is_cancelled() or self._channel.cancelled.is_set()

    @property
    def grown(self) -> bool:
        return self._strand.cursor.length + 1 >= self._target < self._most

    def grow(self) -> None:
        more = max(_REPLY, self._target // 2)
        self._target = min(self._most, self._target + more)
        self._strand.cursor.layers.reserve(self._target)

    def begin(self) -> None:
        self._started = time.perf_counter()
        self._strand.cursor.layers.reserve(self._target)
        self._begun()

    def read(self, chunk: int) -> bool:
        strand, answer = self._strand, self._answer
        if strand.unfed:
            strand.logits = strand.read(strand.ids, strand.cursor.length + chunk, last=True)
            if strand.unfed:
                return True
        assert strand.logits is not None, "all that was fed left logits"
        earlier = list(answer.tokens)
        if not earlier:
            strand.asked = list(strand.ids)
        sampler = Sampler(
            self._options,
            strand.runtime.vocab_size,
            strand.asked,
            answer.processors,
            limit=strand.runtime.known_ids,
            generated=earlier,
        )
        line = Line(strand.cursor, strand.logits, sampler, limit=self._limit)
        if not strand.forced:
            strand.forced.extend(answer.close_reasoning())
        line.force(strand.forced)
        line.put_forced()
        self.line, strand.logits = line, None
        return False

    def prepare(self) -> None:
        strand = self._strand
        if strand.can_shift and strand.position >= strand.max_seq_len - 1:
            strand.shift()

    def take(self, sampled: Sampled) -> bool:
        assert self.line is not None
        strand, answer = self._strand, self._answer
        strand.ids.append(sampled.token_id())
        if strand.forced:
            strand.forced.popleft()
        self._stopped = answer.add(sampled)
        self._hand_out(self._flush.token())
        if self._stopped:
            return False
        if not strand.forced:
            strand.forced.extend(answer.close_reasoning())
            self.line.force(strand.forced)
        return True

    def end(self, reason: FinishReason) -> None:
        if reason == "stop" and not self._stopped:
            reason = "length" if self._limit == self._options.max_tokens else "context_full"
        self._keep_logits()
        reply = self._answer.finish(
            "stop" if self._stopped else reason,
            submitted=self._submitted,
            started=self._started,
            prompt_tokens=self._before,
            goes_on=not self._stopped and reason in ("length", "cancelled"),
        )
        self._channel.close()
        self._finished(reply)

    def fail(self, error: BaseException, *, sound: bool = True) -> None:
        try:
            if self._done is not None:
                self._keep_logits()
                self._strand.mend()
        finally:
            self._leave()
            self._channel.close(error)

    def _keep_logits(self) -> None:
        """Where all tokens were fed already, what comes next is drawn from what is known."""
        if self.line is not None and self._strand.cursor.length == self._strand.position:
            # Of memory of its own: a batch's rows would keep the others' logits.
            self._strand.logits = own(self.line.logits)
            mx.eval(self._strand.logits)

    def _leave(self) -> None:
        """Let go of the strand and the answer: from here on they are somebody else's."""
        done, self._done = self._done, None
        if done is None:
            return
        self.line = None
        self._begun = _nothing
        self._answer.resume(_ignore)  # or it would keep this task alive
        done()

    def _emit(self, event: Event) -> None:
        if isinstance(event, Finished):
            # Whoever sees the end may go on at once.
            self._leave()
        self._hand_out(self._flush.take(event))

    def _hand_out(self, events: Sequence[Event]) -> None:
        for event in events:
            self._channel.put(event)


def _closed() -> BusyError:
    return BusyError("The session is closed.", hint="Make another one.")


def _nothing() -> None:
    """What is left to do once all is done."""


def _ignore(event: Event) -> None:
    """Where events go when nobody listens."""
