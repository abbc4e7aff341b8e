"""The thread that owns MLX: jobs go in from any thread, and run one after another.

MLX streams belong to the thread that made them, so a model loaded on one thread and run on another
fails; with one owner the caller's thread does not matter.
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
    """A daemon thread with a queue of jobs, in order."""

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=_work, args=(self._jobs,), name=name, daemon=True)
        self._thread.start()

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

    def close(self) -> None:
        """Let the queued jobs end, then end the thread; idempotent, and safe from the thread."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._jobs.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join()


def _work(jobs: queue.SimpleQueue[_Job | None]) -> None:
    # A function and not a method: the thread must not keep the worker alive.
    while (job := jobs.get()) is not None:
        job()
        del job
    # MLX gives each thread that computes a stream with a thread of its own; one that is left over
    # when the process ends aborts it ("terminate called without an active exception").
    mx.synchronize()
    mx.clear_streams()
