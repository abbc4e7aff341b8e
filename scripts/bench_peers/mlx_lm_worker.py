"""mlx-lm as a peer of bench.py: python mlx_lm_worker.py FOLDER [mkl] [bare].

It generates with its own `generate_step`, greedily; nothing is turned into text. A bare model is
loaded without its tokenizer, which mlx-lm cannot make for every folder.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from wire import Line

line = Line()


class MlxLmRunner:
    """mlx-lm's model."""

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
        for token, _ in generate_step(mx.array(ids), self._model, max_tokens=count):
            times.append(time.perf_counter())
            tokens.append(int(token))
        return times, tokens

    def streams(self, prompts: list[list[int]], count: int) -> tuple[float, list[list[int]]]:
        started = time.perf_counter()
        generator = BatchGenerator(self._model, max_tokens=count)
        places = {uid: place for place, uid in enumerate(generator.insert(prompts))}
        lines: list[list[int]] = [[] for _ in prompts]
        left = len(prompts)
        while left:
            _, responses = generator.next()
            for response in responses:
                lines[places[response.uid]].append(int(response.token))
                left -= response.finish_reason is not None
        return sum(map(len, lines)) / (time.perf_counter() - started), lines

    def peak_bytes(self) -> int:
        return peak_memory()


if __name__ == "__main__":
    if "mkl" in sys.argv[2:]:
        from phyla.backend import prepare

        if prepare() != "mkl":
            sys.exit("mlx-lm+mkl needs the package mkl, which phyla[cpu] brings on x86-64 Linux.")
    import mlx.core as mx
    import mlx_lm
    from mlx_lm.generate import BatchGenerator, generate_step
    from mlx_lm.utils import load_model

    from phyla.benchmark import peak_memory

    started = time.perf_counter()
    bare = "bare" in sys.argv[2:]
    model = load_model(Path(sys.argv[1]))[0] if bare else mlx_lm.load(sys.argv[1])[0]
    line.serve(
        MlxLmRunner(model),
        load_seconds=time.perf_counter() - started,
        about=f"mlx-lm {mlx_lm.__version__}",
    )
