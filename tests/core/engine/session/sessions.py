"""Tiny engines, options, and ways to hold a session up, for the tests of sessions."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
import pytest

from phyla.engine.decode import Cursor
from phyla.engine.engine import load
from phyla.family import Step
from phyla.testing import prompt_ids, write_checkpoint
from phyla.testing.mixed import mixed, mixed_registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    import phyla
    from phyla.engine.session import Session
    from phyla.engine.strand import Strand


LLAMA: dict[str, Any] = {
    "model_type": "llama", "vocab_size": 288, "hidden_size": 32, "intermediate_size": 48,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "max_position_embeddings": 512, "rope_theta": 10000.0,
}  # fmt: skip
WINDOW: dict[str, Any] = {
    **LLAMA, "model_type": "qwen3", "num_hidden_layers": 3, "head_dim": 16,
    "use_sliding_window": True, "sliding_window": 8,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
}  # fmt: skip
CONFIGS: dict[str, Mapping[str, Any]] = {
    "attention": LLAMA,
    "window": WINDOW,
    "everything": mixed("rwfsm"),
}
# Only ASCII is said, so that text tells all.
ASCII = {"suppress_tokens": (*range(32), *range(127, 264))}
GREEDY = {"temperature": 0, "ignore_eos": True, "max_tokens": 8}
DRAWN = {"temperature": 1.3, "seed": 7, "ignore_eos": True, "max_tokens": 8}
OPTIONS: dict[str, Mapping[str, Any]] = {
    "greedy": {"temperature": 0},
    "drawn": {"temperature": 1.3},
    "nucleus": {"temperature": 1.5, "top_p": 0.8},
    "few": {"temperature": 2.0, "top_k": 12, "min_p": 0.01},
    "penalties": {
        "temperature": 0.9, "repetition_penalty": 1.4, "presence_penalty": 0.7,
        "frequency_penalty": 0.6,
    },
    "penalties in a window": {
        "temperature": 0.9, "repetition_penalty": 1.4, "frequency_penalty": 0.6,
        "penalty_window": 6,
    },
    "bias": {"temperature": 1.0, "logit_bias": {65: 3.0, 66: 2.0}},
}  # fmt: skip
PROMPT = prompt_ids(30)


def make(folder: Path, name: str, **more: Any) -> phyla.Engine:
    registry = mixed_registry() if name == "everything" else None
    config = CONFIGS[name]
    return load(write_checkpoint(folder, config, registry=registry), registry=registry, **more)


@contextmanager
def running(engine: phyla.Engine, *, ahead: bool) -> Iterator[None]:
    scheduler = engine.machine.loaded.scheduler
    before, scheduler.run_ahead = scheduler.run_ahead, ahead
    try:
        yield
    finally:
        scheduler.run_ahead = before


@contextmanager
def chunks(engine: phyla.Engine, size: int) -> Iterator[None]:
    """Prompts are read in chunks of so many tokens."""
    scheduler = engine.machine.loaded.scheduler
    before = scheduler.chunk, scheduler.shared_chunk
    scheduler.chunk = scheduler.shared_chunk = size
    try:
        yield
    finally:
        scheduler.chunk, scheduler.shared_chunk = before


@contextmanager
def held_up(engine: phyla.Engine) -> Iterator[None]:
    """The engine's thread waits, so that nothing begins before the block ends."""
    gate = threading.Event()
    waiting = engine.machine._worker.submit(gate.wait)
    try:
        yield
    finally:
        gate.set()
        waiting.result()


@contextmanager
def on_feed(act: Callable[[int], object]) -> Iterator[list[int]]:
    """Do something on the engine's thread before each chunk is fed; collects their sizes."""
    sizes: list[int] = []
    feed = Cursor.feed

    def feeding(self: Cursor, ids: Sequence[int], **more: Any) -> mx.array | None:
        act(len(sizes))
        sizes.append(len(ids))
        return feed(self, ids, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cursor, "feed", feeding)
        yield sizes


def begun(engine: phyla.Engine, ids: Sequence[int] = PROMPT, **more: Any) -> Session:
    """A session that holds these ids."""
    session = engine.session(**more)
    session.append_tokens(ids)
    return session


def alone(engine: phyla.Engine, ids: Sequence[int], options: Mapping[str, Any]) -> phyla.Reply:
    return engine.generate(ids, options=options, prompt_cache=False)


def strand(session: Session) -> Strand:
    return session._strand


def running_bytes(engine: phyla.Engine) -> int:
    scheduler = engine.machine.loaded.scheduler
    return engine.machine.call(lambda: scheduler.running)


def embeddings(engine: phyla.Engine, ids: Sequence[int]) -> np.ndarray[Any, Any]:
    """What the model's own table says of these ids."""
    model = engine.machine.loaded.runtime.model

    def look_up() -> np.ndarray[Any, Any]:
        one = mx.array([list(ids)])
        step = Step(ids=one, positions=mx.arange(len(ids))[None], extents=(len(ids),))
        return np.array(model.embed(step)[0].astype(mx.float32))

    return engine.machine.call(look_up)
