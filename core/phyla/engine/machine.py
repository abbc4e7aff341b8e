"""The model on its thread, with everything that lives there: the pool and the scheduler.

What is said to it from other threads is a job or a task; see `phyla.engine.worker`.
"""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import mlx.core as mx

from phyla.backend import on_cpu
from phyla.engine.answer import Voice
from phyla.engine.features import FeatureCache
from phyla.engine.generation import Runtime
from phyla.engine.layers import Allocation, Layers
from phyla.engine.loading import build
from phyla.engine.pool import Pool
from phyla.engine.precision import available_memory
from phyla.engine.scheduler import Scheduler
from phyla.engine.stream import Channel
from phyla.engine.worker import Worker
from phyla.errors import BusyError

if TYPE_CHECKING:
    from collections.abc import Callable

    from phyla.caching import CacheLimits
    from phyla.engine.loading import Blueprint
    from phyla.engine.scheduler import Task
    from phyla.kv_quantization import KVQuantization
    from phyla.media import MediaLimits

T = TypeVar("T")

LayersPool: TypeAlias = Pool[Layers]

# Prompt tokens fed at once: when nobody else waits for a token, and when somebody does. On a CPU a
# chunk is the time between two looks at the cancel flag, and more than this gains nothing there.
_CPU_CHUNKS = (512, 64)
_GPU_CHUNKS = (2048, 512)

# The part of the free memory that sequences may take when the caller does not say.
_SHARE = 0.5


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much a machine may remember.

    Attributes:
        context: how many tokens a sequence may hold.
        memory: bytes that all sequences may take together, running and remembered; a part of what
            is free when absent.
        cache: what may be remembered of requests that ended.
        quantized: how keys and values are kept smaller, if they are.
        media: which images, audio and videos may be read.
    """

    context: int
    memory: int | None
    cache: CacheLimits
    quantized: KVQuantization | None
    media: MediaLimits


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """What lives on the thread.

    Attributes:
        room: how many tokens one sequence can have with all the memory for itself.
    """

    runtime: Runtime
    pool: LayersPool
    scheduler: Scheduler
    memory: int
    room: int


class Machine:
    """A loaded model and the thread that runs it."""

    def __init__(self, blueprint: Blueprint, limits: Limits) -> None:
        self._worker = Worker(f"phyla {blueprint.checkpoint.name}")
        self._open = _Channels()
        self._closing = threading.Event()
        # Runs when the machine is closed or dropped, and before the interpreter ends.
        self._shut_down = weakref.finalize(
            self, _shut_down, self._worker, self._open, self._closing
        )
        self._loaded: Loaded | None = None
        worker = self._worker
        try:
            self._loaded = worker.submit(lambda: _load(blueprint, limits, worker)).result()
        except BaseException:
            self.close()
            raise

    @property
    def loaded(self) -> Loaded:
        """What lives on the thread.

        Raises:
            BusyError: the machine is closed.
        """
        if self._loaded is None:
            raise BusyError("The engine is closed.", hint="Load the model again.")
        return self._loaded

    @property
    def closing(self) -> threading.Event:
        """Set when whatever runs has to end."""
        return self._closing

    def call(self, job: Callable[[], T]) -> T:
        """Do something on the thread, between two steps, and wait for it."""
        if self._worker.is_current:  # An observer, say, which must not wait for itself.
            return job()
        return self._worker.submit(job).result()

    def on_pool(self, job: Callable[[LayersPool], T]) -> T:
        """Do something with the pool."""
        pool = self.loaded.pool
        return self.call(lambda: job(pool))

    def run(self, task: Task) -> None:
        """Queue a task."""
        scheduler = self.loaded.scheduler
        self._worker.submit(lambda: scheduler.submit(task))

    def channel(self) -> Channel:
        """A channel that is cancelled when the machine is closed."""
        channel = self._open.new()
        if self._closing.is_set():
            channel.cancelled.set()
        return channel

    def close(self) -> None:
        """Cancel what is running, end the thread, and free the model."""
        self._shut_down()
        if self._loaded is not None:
            self._loaded.scheduler.close()
        self._loaded = None


class _Channels:
    """The channels in use, to be cancelled together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._channels: weakref.WeakSet[Channel] = weakref.WeakSet()

    def new(self) -> Channel:
        channel = Channel()
        with self._lock:
            self._channels.add(channel)
        return channel

    def cancel(self) -> None:
        with self._lock:
            channels = list(self._channels)
        for channel in channels:
            channel.cancelled.set()


def _shut_down(worker: Worker, channels: _Channels, closing: threading.Event) -> None:
    closing.set()
    try:
        channels.cancel()
    finally:
        worker.close()


def _load(blueprint: Blueprint, limits: Limits, worker: Worker) -> Loaded:
    """Build the model and what its requests share; on the engine's thread."""
    if mx.metal.is_available():
        # Without it macOS may page the weights out between two requests.
        mx.set_wired_limit(int(mx.device_info()["max_recommended_working_set_size"]))
    model = build(blueprint)
    cpu = on_cpu()
    chunk, shared_chunk = _CPU_CHUNKS if cpu else _GPU_CHUNKS
    allocation = Allocation(
        tuple(model.cache_kinds()), blueprint.precision.activations, limits.quantized
    )
    runtime = Runtime(
        model=model,
        allocation=allocation,
        context=limits.context,
        vocab_size=blueprint.config.vocab_size,
        known_ids=blueprint.tokenizer.vocab_size,
        chunk=chunk,
        features=FeatureCache(model, limits.cache.media_bytes),
        voice=Voice(tokenizer=blueprint.tokenizer, dialect=blueprint.dialect, eos=blueprint.eos),
    )
    memory = limits.memory or int(_free_memory() * _SHARE)
    cache = limits.cache
    pool: LayersPool = Pool(
        replace(cache, bytes=memory if cache.bytes is None else min(memory, cache.bytes))
    )
    scheduler = Scheduler(
        pool, limit=memory, chunk=chunk, shared_chunk=shared_chunk, run_ahead=not cpu
    )
    worker.set_tick(scheduler.tick)
    return Loaded(
        runtime=runtime,
        pool=pool,
        scheduler=scheduler,
        memory=memory,
        room=_room(runtime, memory),
    )


def _room(runtime: Runtime, memory: int) -> int:
    """How many tokens of one sequence fit, up to the context."""
    low, high = 0, runtime.context
    while low < high:
        middle = (low + high + 1) // 2
        fits = runtime.nbytes(middle) <= memory
        low, high = (middle, high) if fits else (low, middle - 1)
    return low


def _free_memory() -> int:
    """Bytes that are free where the model lives."""
    if on_cpu():
        return available_memory()
    if mx.metal.is_available():
        whole = int(mx.device_info()["max_recommended_working_set_size"])
    else:
        whole = int(mx.device_info().get("memory_size", available_memory()))
    return max(0, whole - mx.get_active_memory())
