"""The engine's thread runs jobs in order, hands back results and errors, and ends cleanly."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from phyla.engine.worker import Worker
from phyla.errors import BusyError


def test_jobs_run_in_order_on_one_thread_that_is_not_the_callers() -> None:
    worker = Worker("test")
    threads = [worker.submit(threading.get_ident) for _ in range(3)]
    names = {future.result() for future in threads}
    worker.close()
    assert len(names) == 1
    assert threading.get_ident() not in names


def test_an_error_reaches_the_caller_and_the_thread_goes_on() -> None:
    worker = Worker("test")
    with pytest.raises(ZeroDivisionError):
        worker.submit(lambda: 1 / 0).result()
    assert worker.submit(lambda: 7).result() == 7
    worker.close()


def test_a_closed_worker_finishes_what_it_has_and_takes_nothing_more() -> None:
    worker = Worker("test")
    last = worker.submit(lambda: "done")
    worker.close()
    worker.close()
    assert last.result() == "done"
    with pytest.raises(BusyError):
        worker.submit(lambda: None)


def test_a_process_that_computed_on_a_worker_ends_without_a_crash() -> None:
    code = (
        "import phyla.backend; phyla.backend.prepare()\n"
        "import mlx.core as mx\n"
        "from phyla.engine.worker import Worker\n"
        "worker = Worker('test')\n"
        "job = lambda: mx.eval(mx.ones((300, 300)) @ mx.ones((300, 300)))\n"
        "worker.submit(job).result()\n"
        "worker.close()\n"
    )
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
