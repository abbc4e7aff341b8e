"""Measures a loaded engine: how fast it reads prompts and writes replies, and what memory it took.

Knows no command line; `phyla bench` and scripts/bench.py both measure with it.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from phyla.prompt import Prompt

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from phyla.engine.engine import Engine

PROMPT_SIZES = (32, 512, 2048)
DECODE_PROMPT = 32
"""How many tokens stand before the ones whose decoding is timed."""


@dataclass(frozen=True)
class Sample:
    """Measurements of one thing."""

    values: tuple[float, ...]

    @classmethod
    def of(cls, values: Iterable[float]) -> Sample:
        """A sample of some values, at least one."""
        return cls(tuple(values))

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def low(self) -> float:
        return min(self.values)

    @property
    def high(self) -> float:
        return max(self.values)


@dataclass(frozen=True)
class Timed:
    """A timed run: what it took, and the ids that came out."""

    tokens_per_second: float
    tokens: tuple[int, ...]


def random_ids(count: int, *, vocab_size: int, seed: int) -> list[int]:
    """A prompt that no cache has seen: `count` ids, drawn evenly; the same for the same seed."""
    draw = random.Random(seed)
    return [draw.randrange(vocab_size) for _ in range(count)]


def time_prefill(engine: Engine, ids: list[int]) -> Timed:
    """Read a prompt; the rate is its length by the time to the first token."""
    reply = engine.generate(ids, options={"max_tokens": 1, "temperature": 0, "ignore_eos": True})
    return Timed(len(ids) / (reply.timings.queue + reply.timings.prefill), reply.tokens)


def time_decode(engine: Engine, ids: list[int], count: int) -> Timed:
    """Write `count` tokens, two at least, greedily and past every end of a turn.

    The first token comes with the prompt; the rate is that of the others.
    """
    options = {"max_tokens": count, "temperature": 0, "ignore_eos": True}
    reply = engine.generate(ids, options=options)
    return Timed((len(reply.tokens) - 1) / reply.timings.decode, reply.tokens)


def time_streams(engine: Engine, prompts: Sequence[list[int]], count: int) -> Timed:
    """Write `count` tokens for each of several prompts at once, greedily, prompts included.

    The rate is that of all tokens written; the ids are those of the first prompt, then the second.
    """
    options = {"max_tokens": count, "temperature": 0, "ignore_eos": True}
    started = time.perf_counter()
    streams = [engine.stream(Prompt(ids=tuple(ids)), options=options) for ids in prompts]
    tokens = [token for stream in streams for token in stream.result().tokens]
    return Timed(len(tokens) / (time.perf_counter() - started), tuple(tokens))


@dataclass(frozen=True)
class FirstToken:
    """Seconds to the first token of a prompt: computed, and with all but its end remembered."""

    cold: float
    warm: float


def time_first_token(engine: Engine, ids: list[int]) -> FirstToken:
    """Read a prompt that the cache does not hold, then once more."""
    options = {"max_tokens": 1, "temperature": 0, "ignore_eos": True}
    cold, warm = (engine.generate(ids, options=options).timings for _ in range(2))
    return FirstToken(cold.queue + cold.prefill, warm.queue + warm.prefill)


def peak_memory() -> int:
    """The most bytes of memory that this process has held, of the GPU's too where it has its own."""
    import mlx.core as mx

    if mx.cuda.is_available():
        return _peak_resident() + mx.get_peak_memory()
    return _peak_resident()


def _peak_resident() -> int:
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            key, _, rest = line.partition(":")
            if key == "VmHWM":
                return int(rest.split()[0]) * 1024
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024  # kilobytes, except on macOS
