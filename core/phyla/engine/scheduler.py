"""Runs many requests at once on one thread: admits them, feeds prompts in turn, decodes in a batch.

Knows tasks, and what they need in memory; knows no text and no family. Between any two steps tasks
may come, go, or be cancelled.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet

from phyla.backend import blas_threads
from phyla.engine.decode import Line, step
from phyla.engine.prefill import step_together
from phyla.errors import MemoryLimitError

if TYPE_CHECKING:
    from collections.abc import Callable

    from phyla.engine.pool import Pool
    from phyla.engine.prefill import Prefill
    from phyla.engine.sampling import Sampled
    from phyla.events import FinishReason


_LOG = logging.getLogger("phyla")


class Holder(Protocol):
    """Who keeps layers between tasks, such as a session."""

    @property
    def nbytes(self) -> int:
        """Bytes that are held."""
        ...

    def close(self) -> None:
        """Hold nothing any more."""
        ...


class Task(ABC):
    """Work on one sequence: reading a prompt, and writing a reply if one is wanted.

    Attributes:
        background: gives way to others where there is a queue.
        line: the reply's tokens, once the prompt is read.
    """

    background: bool = False
    line: Line | None = None

    @property
    @abstractmethod
    def cancelled(self) -> bool:
        """Whether somebody asked for an early end."""

    @property
    @abstractmethod
    def needed(self) -> int:
        """Bytes that the sequence is allowed to take until `grow` is called."""

    @abstractmethod
    def begin(self) -> None:
        """Take what is remembered of the prompt, and get ready to read the rest."""

    @abstractmethod
    def read(self, chunk: int) -> bool:
        """Read up to `chunk` tokens of the prompt; whether there are more."""

    @property
    def joint(self) -> Prefill | None:
        """What is left of the prompt, if it may be read together with others'; then `digest`."""
        return None

    def digest(self) -> bool:
        """Some of `joint` was read; whether there is more."""
        raise AssertionError("this task reads alone")

    def prepare(self) -> None:  # noqa: B027 (most have nothing to do)
        """Do what has to be done before each step of the reply."""

    def take(self, sampled: Sampled) -> bool:
        """Take the reply's next token; whether the reply goes on."""
        raise AssertionError("this task writes no reply")

    @property
    def grown(self) -> bool:
        """Whether the next step may need more than `needed`."""
        return False

    def grow(self) -> None:
        """Raise what is needed."""
        raise AssertionError("this task does not grow")

    def suspend(self) -> None:
        """Give the memory back for a while; `begin` is called again."""
        raise AssertionError("this task cannot be suspended")

    @property
    def suspends(self) -> bool:
        """Whether `suspend` is there."""
        return False

    @abstractmethod
    def end(self, reason: FinishReason) -> None:
        """No step follows; hand over the result."""

    @abstractmethod
    def fail(self, error: BaseException, *, sound: bool = True) -> None:
        """Something went wrong; hand over the error.

        What was fed can be trusted if the failure is `sound`, as that of a plugin or a refusal;
        after a pass through the model that failed it cannot.
        """


class Scheduler:
    """The tasks of one engine.

    Args:
        pool: what is remembered of earlier prompts; gives way to what runs.
        limit: bytes that running and remembered sequences may take together.
        chunk: prompt tokens that are read at once when nobody else waits for a token.
        shared_chunk: prompt tokens that are read at once when somebody does.
        run_ahead: for a single reply as well; see `phyla.engine.decode.step`. May be changed between
            two steps.
    """

    def __init__(
        self, pool: Pool[Any], *, limit: int, chunk: int, shared_chunk: int, run_ahead: bool
    ) -> None:
        self._pool = pool
        self._limit = limit
        self.chunk = chunk
        self.shared_chunk = shared_chunk
        self.run_ahead = run_ahead
        self._holders: WeakSet[Holder] = WeakSet()
        self._waiting: list[Task] = []
        self._reading: list[Task] = []
        self._writing: list[Task] = []
        self._threads = blas_threads()

    def submit(self, task: Task) -> None:
        """Queue a task."""
        self._waiting.append(task)

    def tick(self) -> bool:
        """Do a little of everything; whether there is more to do.

        Whatever goes wrong, the thread lives on, and nobody waits for an answer in vain.
        """
        try:
            self._drop_cancelled()
            self._admit()
            self._read()
            self._write()
        except BaseException as error:  # noqa: BLE001 (a mistake of ours, told to whoever it concerns)
            tasks = [*self._waiting, *self._reading, *self._writing]
            self._waiting, self._reading, self._writing = [], [], []
            for task in tasks:
                self._fail(task, error, sound=False)
        more = bool(self._waiting or self._reading or self._writing)
        if not more:
            self._threads.use_all()
        return more

    def hold(self, holder: Holder) -> None:
        """Count what somebody holds between tasks, for as long as they live."""
        self._holders.add(holder)

    def close(self) -> None:
        """Free what holders hold; the thread has ended."""
        for holder in list(self._holders):
            holder.close()

    # One tick.

    def _drop_cancelled(self) -> None:
        for tasks in (self._waiting, self._reading, self._writing):
            for task in [task for task in tasks if task.cancelled]:
                tasks.remove(task)
                self._guarded(task, lambda task=task: task.end("cancelled"))

    def _admit(self) -> None:
        while self._waiting:
            # In order, those in the background last; nobody overtakes, so that nobody starves.
            task = min(self._waiting, key=lambda task: task.background)
            free = self._limit - self.running
            wanted = task.needed + self._pool.pinned_nbytes
            if wanted > free and task.needed <= self._limit and self._busy:
                return
            self._waiting.remove(task)
            if task.needed > free:
                held = self._limit - free
                self._fail(task, MemoryLimitError(needed=task.needed, limit=self._limit, held=held))
            elif self._guarded(task, task.begin):
                # What was just found is the task's by now, so it is not what gives way.
                self._pool.shrink_to(free - task.needed)
                if self._pool.nbytes > free - task.needed:
                    self._set_back(task)
                    return
                self._reading.append(task)

    def _set_back(self, task: Task) -> None:
        """Deal with a task that pinned prefixes leave no room for now."""
        pinned = self._pool.nbytes
        if task.suspends and self._busy:
            if self._guarded(task, task.suspend):
                self._waiting.insert(0, task)
        else:
            self._fail(task, MemoryLimitError(needed=task.needed, limit=self._limit, held=pinned))

    @property
    def _busy(self) -> bool:
        return bool(self._reading or self._writing)

    def _read(self) -> None:
        if not self._reading:
            return
        self._threads.use_all()
        chunk = self.shared_chunk if self._writing else self.chunk
        first = min(self._reading, key=lambda task: task.background)
        if first.joint is None:
            self._settle(first, lambda: first.read(chunk))
            return
        # Short prompts are read together, since a pass over few tokens costs as much as over many.
        count = first.joint.reach(chunk)
        group = [first]
        for task in self._reading:
            if (len(group) + 1) * count > chunk:
                break
            if task is not first and task.joint is not None and task.joint.reach(count) == count:
                group.append(task)
        try:
            step_together([task.joint for task in group if task.joint is not None], count)
        except BaseException as error:  # noqa: BLE001 (the pass is lost for all, the engine is not)
            for task in group:
                self._reading.remove(task)
                self._fail(task, error, sound=False)
            return
        for task in group:
            self._settle(task, task.digest)

    def _settle(self, task: Task, read: Callable[[], bool]) -> None:
        """Let a task read, and move it on if that was all."""
        more = True

        def act() -> None:
            nonlocal more
            more = read()

        if not self._guarded(task, act, sound=False):
            self._reading.remove(task)
        elif not more:
            self._reading.remove(task)
            if task.line is None:
                self._guarded(task, lambda: task.end("stop"))
            elif task.line.error is not None:
                self._fail(task, task.line.error)
            else:
                self._writing.append(task)

    def _write(self) -> None:
        self._make_room()
        for task in list(self._writing):
            if not self._guarded(task, task.prepare):
                self._writing.remove(task)
        if not self._writing:
            return
        tasks = {id(task.line): task for task in self._writing}
        lines = [task.line for task in self._writing if task.line is not None]
        failed: dict[int, BaseException] = {}
        if len(lines) == 1:
            self._threads.spare_one()
        else:
            self._threads.use_all()

        def take(line: Line, sampled: Sampled) -> bool:
            task = tasks[id(line)]
            try:
                return task.take(sampled)
            except BaseException as error:  # noqa: BLE001 (its neighbours go on)
                failed[id(line)] = error  # told once the step has taken back what it built
                return False

        try:
            going = {id(line) for line in step(lines, take, run_ahead=self.run_ahead)}
        except BaseException as error:  # noqa: BLE001 (the step is lost for all, the engine is not)
            for task in self._writing:
                self._fail(task, failed.get(id(task.line), error), sound=False)
            self._writing.clear()
            return
        writing, self._writing = self._writing, []
        for task in writing:
            line = task.line
            assert line is not None
            if id(line) in going:
                self._writing.append(task)
            elif id(line) in failed:
                self._fail(task, failed[id(line)])
            elif line.error is not None:
                self._fail(task, line.error)
            else:
                self._guarded(task, lambda task=task: task.end("stop"))

    def _make_room(self) -> None:
        """Let replies that outgrow what was set aside for them have more, or suspend the latest."""
        for task in list(self._writing):
            if task not in self._writing or not task.grown:
                continue
            task.grow()
            while self.running > self._limit:
                victim = self._latest(task)
                if victim is None:  # Sessions hold the rest.
                    self._writing.remove(task)
                    self._guarded(task, lambda task=task: task.end("context_full"))
                    break
                (self._reading if victim in self._reading else self._writing).remove(victim)
                if self._guarded(victim, victim.suspend):
                    self._waiting.insert(0, victim)
            self._pool.shrink_to(self._limit - self.running)

    def _latest(self, spared: Task) -> Task | None:
        """Who has to give way: the latest to come, those in the background first."""
        running = (*self._writing, *self._reading)
        candidates = [task for task in running if task.suspends and task is not spared]
        behind = [task for task in candidates if task.background]
        return next(reversed(behind or candidates), None)

    @property
    def running(self) -> int:
        """Bytes that are spoken for by what runs, and by sessions."""
        held = sum(holder.nbytes for holder in self._holders)
        return held + sum(task.needed for task in (*self._reading, *self._writing))

    def _guarded(self, task: Task, act: Callable[[], object], *, sound: bool = True) -> bool:
        """Do something of one task; if that fails, the task fails, and nothing else."""
        try:
            act()
        except BaseException as error:  # noqa: BLE001 (whatever it is belongs to the task)
            self._fail(task, error, sound=sound)
            return False
        return True

    def _fail(self, task: Task, error: BaseException, *, sound: bool = True) -> None:
        try:
            task.fail(error, sound=sound)
        except BaseException:  # noqa: BLE001 (a mistake of ours)
            _LOG.exception("A request failed (%s), and so did telling so.", error)
