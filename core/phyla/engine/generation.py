"""One stateless request, from its prompt to its reply, as a task of the scheduler.

Ties the pool, the decode loop and the reader of the reply together; knows no template and no family.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from phyla.engine.answer import Answer, Voice
from phyla.engine.decode import Cursor, Line, Paused
from phyla.engine.features import MediaFeed, positions_of
from phyla.engine.media import key_of
from phyla.engine.pool import Pin
from phyla.engine.prefill import Prefill
from phyla.engine.sampling import Sampler
from phyla.engine.scheduler import Task

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import mlx.core as mx

    from phyla.engine.features import FeatureCache, Positions
    from phyla.engine.layers import Allocation, Layers
    from phyla.engine.media import PlacedMedia
    from phyla.engine.pool import Key, Lease, Pool
    from phyla.engine.pool import Snapshot as KeptState
    from phyla.engine.resolve import ResolvedOptions
    from phyla.engine.sampling import Sampled
    from phyla.engine.stream import Channel
    from phyla.events import FinishReason, Reply
    from phyla.family import Model
    from phyla.hooks import LogitsProcessor
    from phyla.prompt import Prompt

# Tokens of a reply that are set aside at once; a longer one asks for more on the way.
_REPLY = 512

# Where snapshots are small, one is taken each time so many tokens of a prompt are read.
_INTERVAL = 1024


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """What every request of an engine shares.

    Attributes:
        allocation: how the model's layers are stored.
        context: how many tokens a sequence may hold.
        vocab_size: rows of the head.
        known_ids: how many ids the tokenizer knows.
        chunk: how many prompt tokens are fed at once, at most.
        features: what towers made of media.
        voice: how the model marks what it says.
    """

    model: Model
    allocation: Allocation
    context: int
    vocab_size: int
    known_ids: int
    chunk: int
    features: FeatureCache
    voice: Voice

    def namespace(self, name: str, *, extent: int) -> str:
        """The part of the pool where a sequence finds what it can use.

        One that may reach `extent` tokens may be computed unlike one that stays shorter.
        """
        boundary = self.model.extent_boundary
        far = boundary is not None and extent > boundary
        return f"{'long' if far else 'short'}/{name}"

    def nbytes(self, tokens: int, media: Sequence[PlacedMedia] = ()) -> int:
        """Bytes that a sequence of so many tokens takes at most."""
        chunk = self.chunk
        if self.allocation.bidirectional:  # A picture is read in one go.
            chunk = max([chunk, *(run.stop - run.start for each in media for run in each.runs)])
        return self.allocation.nbytes(tokens, chunk=chunk)

    def cursor(
        self, layers: Layers, *, extent: int, reserve: int, positions: Positions | None = None
    ) -> Cursor:
        """A sequence that goes on from these layers."""
        return Cursor(
            self.model,
            layers,
            dtype=self.allocation.dtype,
            extent=extent,
            reserve=reserve,
            positions=positions,
        )

    def feed(self, media: Sequence[PlacedMedia], *, namespace: str = "") -> MediaFeed | None:
        """What hands out a prompt's media, for requests of one namespace."""
        if not media:
            return None
        return MediaFeed(
            media, self.features, atomic=self.allocation.bidirectional, namespace=namespace
        )


@dataclass(frozen=True, kw_only=True)
class Request:
    """A checked request: it fits the context, and its options are resolved.

    Attributes:
        cached: whether the prompt cache is used, and filled.
        namespace: whose entries of the prompt cache it may see.
        background: whether it gives way to others in a queue.
    """

    prompt: Prompt
    options: ResolvedOptions
    processors: Sequence[LogitsProcessor]
    submitted: float
    cached: bool = True
    namespace: str = ""
    background: bool = False


class Generation(Task):
    """A request on its way.

    Args:
        runtime: what it shares with others.
        pool: what is remembered of earlier prompts.
        request: what is wanted.
        channel: where events go, and where cancelling is asked for.
        finished: told of the reply.
        room: how many tokens the memory has room for.
    """

    def __init__(
        self,
        runtime: Runtime,
        pool: Pool[Layers],
        request: Request,
        channel: Channel,
        finished: Callable[[Reply], None],
        *,
        room: int,
    ) -> None:
        prompt, options = request.prompt, request.options
        self.background = request.background
        self._runtime = runtime
        self._pool = pool
        self._request = request
        self._channel = channel
        self._finished = finished
        left = max(1, min(runtime.context, room) - len(prompt.ids))
        self._limit = left if options.max_tokens is None else min(options.max_tokens, left)
        self._reach = len(prompt.ids) + min(self._limit, _REPLY)
        self._namespace = runtime.namespace(request.namespace, extent=self._extent)
        self._answer = Answer(
            runtime.voice,
            prompt,
            options,
            processors=request.processors,
        )
        self._answer.resume(channel.put)
        self._started: float | None = None
        self._lease: Lease[Layers] | None = None
        self._cached_tokens = 0
        self._cursor: Cursor | None = None
        self._snapshots: list[KeptState] = []
        self._prefill: Prefill | None = None
        self._stopped = False
        self._paused: Paused | None = None
        self._owner = object()  # of the pins; not the task itself, which they would keep alive
        self._needed = self._need()

    # What the scheduler asks.

    @property
    def cancelled(self) -> bool:
        return self._channel.cancelled.is_set()

    @property
    def needed(self) -> int:
        return self._needed

    def _need(self) -> int:
        kept = sum(snapshot.nbytes for snapshot in self._snapshots)
        expected = len(self._cuts(self._reach)) * self._runtime.allocation.snapshot_nbytes
        media = self._request.prompt.media
        return self._runtime.nbytes(self._reach, media) + max(kept, expected)

    @property
    def grown(self) -> bool:
        assert self._cursor is not None
        return self._cursor.length + 1 >= self._reach and self._reach < self._extent

    def grow(self) -> None:
        self._reach = min(self._extent, self._reach + max(_REPLY, self._reach // 2))
        self._needed = self._need()
        if self._cursor is not None:
            self._cursor.layers.reserve(self._reach)

    @property
    def suspends(self) -> bool:
        return True

    @property
    def _extent(self) -> int:
        return len(self._request.prompt.ids) + self._limit

    # What it does.

    def begin(self) -> None:
        request, runtime = self._request, self._runtime
        if self._started is None:
            self._started = time.perf_counter()
        ids = self._fed_ids()
        layers: Layers | None = None
        if request.cached:
            self._lease = self._pool.acquire(self._key(ids), namespace=self._namespace)
            layers = self._lease.layers
            self._snapshots = list(self._lease.snapshots)
            held = 0 if layers is None else layers.nbytes  # the pool lets entries be roomy
            self._needed = max(self._need(), held)
            if self._paused is None:
                self._cached_tokens = self._lease.length
        media = request.prompt.media
        self._cursor = runtime.cursor(
            layers or runtime.allocation.layers(),
            extent=self._extent,
            reserve=self._reach,
            positions=positions_of(runtime.model, request.prompt.ids, media),
        )
        self._prefill = Prefill(
            self._cursor,
            ids,
            cuts=self._cuts(len(ids)),
            media=runtime.feed(media, namespace=request.namespace),
        )

    def read(self, chunk: int) -> bool:
        assert self._prefill is not None
        self._prefill.step(chunk)
        return self.digest()

    @property
    def joint(self) -> Prefill | None:
        return None if self._prefill is None or self._prefill.alone else self._prefill

    def digest(self) -> bool:
        assert self._prefill is not None
        assert self._cursor is not None
        if self._cursor.length in self._cuts(len(self._fed_ids())):
            self._snapshots.append(self._cursor.layers.snapshot())
        logits = self._prefill.logits
        if logits is None:
            return True
        self._write(logits)
        return False

    def _write(self, logits: mx.array) -> None:
        assert self._cursor is not None
        self._prefill = None
        if self._paused is not None:
            self.line, self._paused = self._paused.resumed(self._cursor, logits), None
            return
        request, runtime = self._request, self._runtime
        sampler = Sampler(
            request.options,
            runtime.vocab_size,
            request.prompt.ids,
            self._answer.processors,
            limit=runtime.known_ids,
        )
        self.line = Line(self._cursor, logits, sampler, limit=self._limit)
        self.line.force(self._answer.close_reasoning())
        self.line.put_forced()

    def take(self, sampled: Sampled) -> bool:
        assert self.line is not None
        if self._answer.add(sampled):
            self._stopped = True
            return False
        self.line.force(self._answer.close_reasoning())
        return True

    def suspend(self) -> None:
        if self.line is not None:
            self._paused, self.line = self.line.paused(), None
        self._store()

    def end(self, reason: FinishReason) -> None:
        if reason == "stop" and not self._stopped:
            wanted = self._request.options.max_tokens
            reason = "length" if self._limit == wanted else "context_full"
        ids = self._request.prompt.ids
        now = time.perf_counter()
        # Stored first: whoever has seen the reply may count on it.
        self._store()
        reply = self._answer.finish(
            reason,
            submitted=self._request.submitted,
            started=self._started or now,
            prompt_tokens=len(ids),
            cached_tokens=self._cached_tokens,
            pinned_tokens=self._pool.pinned_length(self._key(ids), namespace=self._namespace)
            if self._request.cached
            else 0,
        )
        self._channel.close()
        self._finished(reply)

    def fail(self, error: BaseException, *, sound: bool = True) -> None:
        try:
            if sound:
                self._store(pins=False)
            elif self._lease is not None:
                self._pool.release(self._lease)
        finally:
            self._let_go()
            self._channel.close(error)

    # What is remembered.

    def _fed_ids(self) -> tuple[int, ...]:
        """What has to be fed before the next token can be drawn."""
        return (*self._request.prompt.ids, *self._answer.tokens)

    def _key(self, ids: Sequence[int]) -> Key:
        return key_of(ids, self._request.prompt.media)

    def _cuts(self, count: int) -> set[int]:
        """Lengths at which a snapshot is worth its memory."""
        allocation = self._runtime.allocation
        if not self._request.cached or allocation.cuttable:
            return set()
        prompt = self._request.prompt
        # Of ids whose inner structure nobody knows, at least the same ones may come again.
        last = len(prompt.ids) - 1
        boundaries = {min(boundary, last) for boundary in prompt.boundaries} or {last}
        cuts = {*boundaries, *(pin.length for pin in prompt.pins)}
        if allocation.snapshot_nbytes <= _INTERVAL * allocation.token_bytes:
            cuts |= set(range(_INTERVAL, count, _INTERVAL))
        inside = [(placed.start, placed.stop) for placed in prompt.media]
        return {
            cut
            for cut in cuts
            if 0 < cut <= count and not any(start < cut < stop for start, stop in inside)
        }

    def _store(self, *, pins: bool = True) -> None:
        cursor, request, lease = self._cursor, self._request, self._lease
        wanted = pins and bool(request.prompt.pins)
        if cursor is None or (
            lease is not None and not (lease.lent or wanted) and cursor.length == lease.length
        ):
            # Nothing new, and what there is belongs to another entry.
            if lease is not None:
                self._pool.release(lease)
            self._let_go()
            return
        if request.cached and cursor.length:
            length = cursor.length
            now = self._pool.clock()
            stable = max((cut for cut in request.prompt.boundaries if cut <= length), default=0)
            self._pool.store(
                self._lease,
                self._key(self._fed_ids()).cut(length),
                cursor.layers,
                snapshots=self._snapshots,
                stable=stable or min(length, len(request.prompt.ids)),
                namespace=self._namespace,
                pins=[
                    Pin(pin.length, now + pin.ttl, None, self._owner)
                    for pin in request.prompt.pins
                    if pins and pin.length <= length
                ],
            )
        self._let_go()

    def _let_go(self) -> None:
        """Keep nothing alive that somebody else owns now."""
        self._lease = self._cursor = self._prefill = None
        self._snapshots = []
