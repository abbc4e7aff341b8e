"""Phyla as a peer of bench.py: python phyla_worker.py MODEL [DTYPE]."""

from __future__ import annotations

import sys
import time

from wire import Line

line = Line()


class PhylaRunner:
    """An engine, measured as `phyla bench` does."""

    def __init__(self, engine: phyla.Engine) -> None:
        self._engine = engine

    def prefill(self, ids: list[int]) -> tuple[float, list[int]]:
        timed = benchmark.time_prefill(self._engine, ids)
        return timed.tokens_per_second, list(timed.tokens)

    def decode(self, ids: list[int], count: int) -> tuple[float, list[int]]:
        timed = benchmark.time_decode(self._engine, ids, count)
        return timed.tokens_per_second, list(timed.tokens)

    def streams(self, prompts: list[list[int]], count: int) -> tuple[float, list[list[int]]]:
        timed = benchmark.time_streams(self._engine, prompts, count)
        tokens = list(timed.tokens)
        return timed.tokens_per_second, [
            tokens[start : start + count] for start in range(0, len(tokens), count)
        ]

    def peak_bytes(self) -> int:
        return benchmark.peak_memory()


if __name__ == "__main__":
    import phyla
    from phyla import benchmark

    source, dtype = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
    load = phyla.load  # importing MLX is no part of the time to load a model, here as below
    started = time.perf_counter()
    with load(source, dtype=dtype) as engine:
        line.serve(
            PhylaRunner(engine),
            load_seconds=time.perf_counter() - started,
            about=f"phyla {phyla.__version__}",
        )
