"""Whether a long reply grows: python long_decode.py FOLDER STEPS.

One session writes the reply in stretches, which is one sequence to the model. After each, the time
per step and the memory that MLX holds are noted; a line is fitted to both. It is done three times,
and the fastest stretch at each place counts, since a busy machine only ever adds. The bytes that the
attention layers' keys and values have to take are told apart from all others.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import phyla.engine  # brings the fast BLAS, which has to come before mlx

import mlx.core as mx  # isort: skip
import numpy as np

import phyla
from phyla.benchmark import DECODE_PROMPT, random_ids
from phyla.checkpoint import open_checkpoint
from phyla.engine.layers import Allocation
from phyla.registry import discover

if TYPE_CHECKING:
    from collections.abc import Sequence

STRETCH = 50
"""Steps between two looks."""
RUNS = 3


@dataclass(frozen=True)
class Look:
    """What was found after a stretch: tokens held, seconds per step within it, bytes active."""

    tokens: int
    seconds: float
    bytes: int


@dataclass(frozen=True)
class Fit:
    """A straight line through values: their mean, and how much it rises from the first to last."""

    mean: float
    rise: float

    @classmethod
    def of(cls, tokens: Sequence[int], values: Sequence[float]) -> Fit:
        """Fit by least squares."""
        slope, _ = np.polyfit(tokens, values, 1)
        return cls(float(np.mean(values)), float(slope) * (tokens[-1] - tokens[0]))


def look(engine: phyla.Engine, steps: int) -> list[Look]:
    """Write `steps` tokens after a short prompt; the first stretch only warms up."""
    looks: list[Look] = []
    options = {"max_tokens": STRETCH, "temperature": 0, "ignore_eos": True}
    with engine.session(max_seq_len=DECODE_PROMPT + steps + 1) as session:
        size = engine.tokenizer.vocab_size
        session.append_tokens(random_ids(DECODE_PROMPT, vocab_size=size, seed=1))
        for _ in range(steps // STRETCH):
            reply = session.generate(options)
            seconds = reply.timings.decode / (len(reply.tokens) - 1)
            looks.append(Look(session.position, seconds, mx.get_active_memory()))
    return looks[1:]


def key_bytes(folder: str) -> int:
    """Bytes that a token's keys and values take in the layers that keep every token."""
    checkpoint = open_checkpoint(folder, offline=True)
    family = discover().family_for(checkpoint)
    model = family.model(family.config.read(checkpoint.config).settle(checkpoint))
    return Allocation(tuple(model.cache_kinds()), mx.float32).token_bytes


def main() -> None:
    folder, steps = sys.argv[1], int(sys.argv[2])
    with phyla.load(folder, dtype="float32") as engine:
        runs = [look(engine, steps) for _ in range(RUNS)]
    looks = [min(each, key=lambda one: one.seconds) for each in zip(*runs, strict=True)]
    tokens = [each.tokens for each in looks]
    time = Fit.of(tokens, [each.seconds for each in looks])
    memory = Fit.of(tokens, [each.bytes for each in looks])
    must = key_bytes(folder) * (tokens[-1] - tokens[0])
    print(
        f"time per step: {1e3 * time.mean:.2f} ms, {100 * time.rise / time.mean:+.1f} % from step "
        f"{tokens[0]} to {tokens[-1]} by a linear fit of {len(looks)} means of {STRETCH} steps "
        f"(the fastest of {RUNS})"
    )
    print(
        f"memory: {memory.mean / 2**20:.1f} MiB, {memory.rise / 2**20:+.3f} MiB by the fit; keys and "
        f"values have to take {must / 2**20:.3f} MiB more, so all else "
        f"{(memory.rise - must) / 2**20:+.3f} MiB"
    )


if __name__ == "__main__":
    main()
