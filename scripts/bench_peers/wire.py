"""How bench.py talks with its peers: one JSON object a line, over the pipes of a subprocess.

Knows nothing of what is measured beyond the names of the measurements. Imports neither mlx nor
phyla, so that a worker decides itself what it loads first.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@dataclass(frozen=True)
class Timed:
    """What a measurement gave: tokens per second, the ids, and how long all of it took."""

    rate: float
    tokens: tuple[int, ...]
    wall: float


class Runner(Protocol):
    """A loaded model, in a worker."""

    def prefill(self, ids: list[int]) -> tuple[float, list[int]]:
        """Tokens per second up to the first token, and that token."""
        ...

    def decode(self, ids: list[int], count: int) -> tuple[float, list[int]]:
        """Tokens per second after the first of `count` tokens, and all of them."""
        ...

    def streams(self, prompts: list[list[int]], count: int) -> tuple[float, list[list[int]]]:
        """Tokens per second, over all, of `count` tokens for each prompt at once; and the ids."""
        ...

    def peak_bytes(self) -> int:
        """The most memory that this process has held."""
        ...


class Line:
    """A worker's end of the pipes; make it first of all, before a library prints something."""

    def __init__(self) -> None:
        self.started = time.perf_counter()
        # Whatever else writes to standard output goes to standard error instead.
        self._out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def serve(self, runner: Runner, *, load_seconds: float, about: str) -> None:
        """Answer requests until the other end closes."""
        self._send({"load_seconds": load_seconds, "about": about})
        for line in sys.stdin:
            request = json.loads(line)
            match request["do"]:
                case "prefill":
                    rate, tokens = runner.prefill(request["ids"])
                    self._send({"rate": rate, "tokens": tokens})
                case "decode":
                    rate, tokens = runner.decode(request["ids"], request["count"])
                    self._send({"rate": rate, "tokens": tokens})
                case "streams":
                    rate, lines = runner.streams(request["prompts"], request["count"])
                    tokens = [token for line in lines for token in line]
                    self._send({"rate": rate, "tokens": tokens})
                case "memory":
                    self._send({"bytes": runner.peak_bytes()})
                case other:
                    raise ValueError(f"no measurement is called {other!r}")

    def _send(self, message: dict[str, Any]) -> None:
        self._out.write(json.dumps(message) + "\n")
        self._out.flush()


class Process:
    """A worker, as bench.py sees it; started and loaded once this exists."""

    def __init__(self, script: Path, arguments: Sequence[str]) -> None:
        started = time.perf_counter()
        self._name = script.name
        self._process = subprocess.Popen(
            [sys.executable, str(script), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        ready = self._receive()
        self.start_seconds = time.perf_counter() - started
        """From starting Python to being ready, imports included."""
        self.load_seconds: float = ready["load_seconds"]
        self.about: str = ready["about"]

    def prefill(self, ids: list[int]) -> Timed:
        return self._timed({"do": "prefill", "ids": ids})

    def decode(self, ids: list[int], count: int) -> Timed:
        return self._timed({"do": "decode", "ids": ids, "count": count})

    def streams(self, prompts: list[list[int]], count: int) -> Timed:
        return self._timed({"do": "streams", "prompts": prompts, "count": count})

    def peak_bytes(self) -> int:
        return self._ask({"do": "memory"})["bytes"]

    def close(self) -> None:
        """End the worker."""
        self._stdin.close()
        self._process.wait()
        self._stdout.close()

    def _timed(self, request: dict[str, Any]) -> Timed:
        started = time.perf_counter()
        answer = self._ask(request)
        wall = time.perf_counter() - started
        return Timed(answer["rate"], tuple(answer["tokens"]), wall)

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        self._stdin.write(json.dumps(request) + "\n")
        self._stdin.flush()
        return self._receive()

    def _receive(self) -> dict[str, Any]:
        line = self._stdout.readline()
        if not line:
            code = self._process.wait()
            sys.exit(f"{self._name} ended with exit code {code}; its last words are above.")
        return json.loads(line)

    @property
    def _stdin(self) -> IO[str]:
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def _stdout(self) -> IO[str]:
        assert self._process.stdout is not None
        return self._process.stdout
