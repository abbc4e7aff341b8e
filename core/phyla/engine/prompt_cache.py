"""`engine.cache`: a look into the prompt cache, and a hand on it. Safe to use from any thread."""

from __future__ import annotations

import threading
from concurrent.futures import Future, wait
from dataclasses import replace
from typing import TYPE_CHECKING

from phyla.engine.features import positions_of
from phyla.engine.media import key_of
from phyla.engine.pool import Pin
from phyla.engine.prefill import Prefill
from phyla.engine.scheduler import Task
from phyla.errors import CancelledError, ContextOverflowError, RequestError
from phyla.prompt import Prompt
from phyla.validation import check_text, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from phyla.caching import CacheExplanation, CacheStats
    from phyla.engine.decode import Cursor
    from phyla.engine.encoder import Encoder
    from phyla.engine.generation import Runtime
    from phyla.engine.layers import Layers
    from phyla.engine.machine import Machine
    from phyla.engine.pool import Lease, Pool
    from phyla.engine.pool import Snapshot as KeptState
    from phyla.events import FinishReason
    from phyla.family import ThinkingLike
    from phyla.messages import MessagesLike, ToolLike


class PromptCache:
    """What an engine remembers of earlier prompts."""

    def __init__(self, encoder: Encoder, machine: Machine) -> None:
        self._encoder = encoder
        self._machine = machine

    def explain(
        self,
        messages: MessagesLike | Prompt,
        *,
        tools: Sequence[ToolLike] | None = None,
        tool_choice: str = "auto",
        thinking: ThinkingLike = None,
        namespace: str = "",
        max_tokens: int | None = None,
    ) -> CacheExplanation:
        """Say how much of a request would come from the cache now, and what limits it.

        The arguments are those of `Engine.stream`; nothing is computed and nothing changes.
        `max_tokens` is as it will be asked for; it matters to models with LongRoPE only.
        """
        check_text("namespace", namespace)
        prompt = messages
        if not isinstance(prompt, Prompt):
            prompt = self._encoder.encode(
                prompt, tools=tools, tool_choice=tool_choice, thinking=thinking
            )
        runtime = self._machine.loaded.runtime
        extent = _extent(runtime, len(prompt.ids), max_tokens)
        part = runtime.namespace(namespace, extent=extent)
        key = key_of(prompt.ids, prompt.media)
        return self._machine.on_pool(lambda pool: pool.explain(key, namespace=part))

    def stats(self) -> CacheStats:
        """Count what is held, and what was found and missed so far."""
        features = self._machine.loaded.runtime.features
        return self._machine.on_pool(
            lambda pool: replace(
                pool.stats(),
                media=len(features),
                media_bytes=features.nbytes,
                media_hits=features.hits,
                media_misses=features.misses,
            )
        )

    def clear(self) -> None:
        """Forget everything, pins included; requests that are running keep what they use."""
        features = self._machine.loaded.runtime.features
        self._machine.on_pool(lambda pool: (pool.clear(), features.clear()))

    def pin(
        self,
        name: str,
        messages: MessagesLike,
        ttl: float,
        *,
        tools: Sequence[ToolLike] | None = None,
        thinking: ThinkingLike = None,
        namespace: str = "",
        max_tokens: int | None = None,
    ) -> int:
        """Compute a conversation's beginning now and keep it for `ttl` seconds.

        Args:
            name: what to call the pin; an earlier one of that name is let go.
            messages: the beginning, such as a system message; what follows it may differ.
            ttl: seconds from now.
            tools: those that will be offered.
            thinking: as it will be asked for.
            namespace: whose requests are to find it.
            max_tokens: as it will be asked for; matters to models with LongRoPE only.

        Returns:
            How many tokens are kept.

        Raises:
            RequestError: the messages alone come to no tokens that a later request must share, or
                to fewer than the cache keeps, or `ttl` is no positive number.
            PhylaError: as `Engine.stream` raises them.
        """
        if isinstance(ttl, bool) or not isinstance(ttl, (int, float)) or not 0 < ttl < float("inf"):
            raise RequestError(
                f"ttl should be a positive number of seconds; found {shown(ttl)}.",
                field="ttl",
                expected="a positive number of seconds",
                found=ttl,
            )
        check_text("name", name)
        check_text("namespace", namespace)
        beginning = self._encoder.beginning(messages, tools=tools, thinking=thinking)
        ids = beginning.ids
        loaded = self._machine.loaded
        limit = loaded.runtime.context - 1
        if len(ids) > limit:
            raise ContextOverflowError(limit=limit, excess=len(ids) - limit)
        # Before anything is computed.
        limits = loaded.pool.limits
        if limits.bytes == 0 or limits.entries == 0:
            raise RequestError(
                "The prompt cache is off, and cannot keep anything.",
                field="cache",
                hint="Load the model with CacheLimits that leave it room.",
            )
        if len(ids) < limits.min_tokens:
            raise RequestError(
                f"The beginning has {len(ids)} tokens; the prompt cache keeps none with less than "
                f"{limits.min_tokens}.",
                field="messages",
                hint="See CacheLimits.min_tokens.",
            )
        for placed in beginning.media:
            placed.item.prepare()
        task = Remembering(
            loaded.runtime,
            loaded.pool,
            beginning,
            name=name,
            ttl=float(ttl),
            own=namespace,
            namespace=loaded.runtime.namespace(
                namespace, extent=_extent(loaded.runtime, len(ids), max_tokens)
            ),
            cancelled=self._machine.closing.is_set,
        )
        self._machine.run(task)
        try:
            return task.kept.result()
        except BaseException:
            # Also a signal, while it waits: nobody wants the pin any more.
            task.stopped.set()
            wait([task.kept])
            raise

    def unpin(self, name: str, *, namespace: str = "") -> bool:
        """Let a pin of this name go; whether there was one."""
        check_text("name", name)
        check_text("namespace", namespace)
        runtime = self._machine.loaded.runtime
        parts = {runtime.namespace(namespace, extent=extent) for extent in (0, runtime.context)}
        return self._machine.on_pool(
            lambda pool: sum(pool.unpin(name, namespace=part) for part in parts) > 0
        )


def _extent(runtime: Runtime, prompt: int, max_tokens: int | None) -> int:
    """How many tokens a request may reach."""
    room = runtime.context - prompt
    return prompt + (room if max_tokens is None else min(max_tokens, room))


class Remembering(Task):
    """Reads a prompt's beginning and leaves it in the pool, pinned.

    Attributes:
        kept: how many tokens the pin holds, once it is there.
        stopped: set it to give up.
    """

    def __init__(
        self,
        runtime: Runtime,
        pool: Pool[Layers],
        beginning: Prompt,
        *,
        name: str,
        ttl: float,
        own: str,
        namespace: str,
        cancelled: Callable[[], bool],
    ) -> None:
        self.kept: Future[int] = Future()
        self.stopped = threading.Event()
        self._runtime = runtime
        self._pool = pool
        self._ids, self._media = beginning.ids, beginning.media
        self._key = key_of(beginning.ids, beginning.media)
        self._name = name
        self._ttl = ttl
        self._own = own  # the namespace by the caller's name, which the features go by
        self._namespace = namespace
        self._is_cancelled = cancelled
        self._lease: Lease[Layers] | None = None
        self._cursor: Cursor | None = None
        self._prefill: Prefill | None = None
        self._snapshots: list[KeptState] = []

    @property
    def cancelled(self) -> bool:
        return self.stopped.is_set() or self._is_cancelled()

    @property
    def needed(self) -> int:
        return self._runtime.nbytes(len(self._ids), self._media)

    def begin(self) -> None:
        self._lease = self._pool.acquire(self._key, namespace=self._namespace)
        self._snapshots = list(self._lease.snapshots)
        self._cursor = self._runtime.cursor(
            self._lease.layers or self._runtime.allocation.layers(),
            extent=self._runtime.context,
            reserve=len(self._ids),
            positions=positions_of(self._runtime.model, self._ids, self._media),
        )

        self._prefill = Prefill(
            self._cursor,
            self._ids,
            logits=False,
            media=self._runtime.feed(self._media, namespace=self._own),
        )

    def read(self, chunk: int) -> bool:
        assert self._prefill is not None
        self._prefill.step(chunk)
        return not self._prefill.done

    def end(self, reason: FinishReason) -> None:
        cursor = self._cursor
        if reason == "cancelled" or cursor is None:
            self._give_back()
            self.kept.set_exception(CancelledError("The pin was given up, or the engine closed."))
            return
        self._snapshots.append(cursor.layers.snapshot())
        pool, count = self._pool, len(self._ids)
        pool.store(
            self._lease,
            self._key,
            cursor.layers,
            snapshots=self._snapshots,
            stable=count,
            namespace=self._namespace,
            pins=[Pin(count, pool.clock() + self._ttl, self._name)],
        )
        held = pool.pinned_length(self._key, namespace=self._namespace)
        if held < count:
            others = pool.stats().pinned_entries
            taken = f"; {others} other pins hold what there is" if others else ""
            self.kept.set_exception(
                RequestError(
                    f"The beginning has {count} tokens, for which the prompt cache has no room"
                    f"{taken}.",
                    field="messages",
                    hint="Unpin another, or load the model with larger CacheLimits (entries, bytes).",
                )
            )
        else:
            self.kept.set_result(count)
        self._lease = self._cursor = self._prefill = None

    def fail(self, error: BaseException, *, sound: bool = True) -> None:
        try:
            self._give_back(sound=sound)
        finally:
            self.kept.set_exception(error)

    def _give_back(self, *, sound: bool = True) -> None:
        lease, cursor = self._lease, self._cursor
        self._lease = self._cursor = self._prefill = None
        if lease is None:
            return
        if sound and cursor is not None and (lease.lent or cursor.length > lease.length):
            self._pool.store(
                lease,
                self._key.cut(cursor.length),
                cursor.layers,
                snapshots=self._snapshots,
                stable=cursor.length,
                namespace=self._namespace,
            )
        else:
            self._pool.release(lease)
