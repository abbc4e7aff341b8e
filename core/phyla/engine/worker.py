"""The thread that owns MLX: jobs go in from any thread, and run one after another.

MLX streams belong to the thread that made them, so a model loaded on one thread and run on another
fails; with one owner the caller's thread does not matter. Between jobs the thread does what it is
given to do, a little at a time.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeAlias, TypeVar

import mlx.core as mx

from phyla.errors import BusyError

T = TypeVar("T")

_Job: TypeAlias = Callable[[], None]


class Worker:
    """A daemon thread with a queue of jobs, in order.

    Jobs are short; long work is done by ticking. `set_tick` names a function that does a little of
    it and returns whether there is more; it is called after each job, and then again until there is
    no more, with the jobs that have come in between.
    """

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._tick: list[Callable[[], bool]] = []
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(
            target=_work, args=(self._jobs, self._tick), name=name, daemon=True
        )
        self._thread.start()

    def set_tick(self, tick: Callable[[], bool]) -> None:
        """Name what is done between jobs; call it from a job."""
        self._tick[:] = [tick]

    def submit(self, job: Callable[[], T]) -> Future[T]:
        """Queue a job; its result or exception arrives in the future.

        Raises:
            BusyError: the worker is closed.
        """
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = job()
            except BaseException as error:  # noqa: BLE001 (whatever it is belongs to the caller)
                future.set_exception(error)
            else:
                future.set_result(result)

        with self._lock:
            if self._closed:
                raise BusyError("The engine is closed.", hint="Load the model again.")
            self._jobs.put(run)
        return future

    @property
    def is_current(self) -> bool:
        """Whether the caller is on the worker's own thread."""
        return threading.current_thread() is self._thread

    def close(self) -> None:
        """Let the queued jobs and what they began end, then end the thread.

        Idempotent, and safe from the thread itself.
        """
        with self._lock:
            if not self._closed:
                self._closed = True
                self._jobs.put(None)
        if not self.is_current:
            self._thread.join()


def _work(jobs: queue.SimpleQueue[_Job | None], tick: list[Callable[[], bool]]) -> None:
    # A function and not a method: the thread must not keep the worker alive.
    closing = more = False
    while not closing or more:
        try:
            job = jobs.get(block=not more)
        except queue.Empty:
            pass
        else:
            if job is None:
                closing = True
            else:
                job()
            del job
            if not jobs.empty():
                continue  # Who comes together is served together.
        more = any(do() for do in tick)
    tick.clear()
    # MLX gives each thread that computes a stream with a thread of its own; one that is left over
    # when the process ends aborts it ("terminate called without an active exception").
    mx.synchronize()
    mx.clear_streams()
