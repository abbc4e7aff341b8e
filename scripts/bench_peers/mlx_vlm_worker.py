"""mlx-vlm as a peer of bench.py, with MKL: python mlx_vlm_worker.py FOLDER.

It generates with its own `generate_step`, greedily and without media; nothing is turned into text.
"""

from __future__ import annotations

import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from wire import Line

line = Line()


class MlxVlmRunner:
    """mlx-vlm's model."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def prefill(self, ids: list[int]) -> tuple[float, list[int]]:
        started = time.perf_counter()
        times, tokens = self._run(ids, 1)
        return len(ids) / (times[0] - started), tokens

    def decode(self, ids: list[int], count: int) -> tuple[float, list[int]]:
        times, tokens = self._run(ids, count)
        return (count - 1) / (times[-1] - times[0]), tokens

    def _run(self, ids: list[int], count: int) -> tuple[list[float], list[int]]:
        times: list[float] = []
        tokens: list[int] = []
        steps = generate_step(
            mx.array([ids]), self._model, None, None, max_tokens=count, temperature=0.0
        )
        for token, _ in steps:
            times.append(time.perf_counter())
            tokens.append(int(token))
        return times, tokens

    def streams(self, prompts: list[list[int]], count: int) -> tuple[float, list[list[int]]]:
        raise ValueError("mlx-vlm is compared by single prompts only")

    def peak_bytes(self) -> int:
        return peak_memory()


if __name__ == "__main__":
    from phyla.backend import prepare

    if prepare() != "mkl":
        sys.exit("mlx-vlm is compared with MKL, which phyla[cpu] brings on x86-64 Linux.")
    import mlx.core as mx
    from mlx_vlm.generate import generate_step
    from mlx_vlm.utils import load_model

    from phyla.benchmark import peak_memory

    started = time.perf_counter()
    model = load_model(Path(sys.argv[1]))
    line.serve(
        MlxVlmRunner(model),
        load_seconds=time.perf_counter() - started,
        about=f"mlx-vlm {version('mlx-vlm')}",
    )
