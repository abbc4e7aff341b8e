"""One model of media_models.py in both programs: python media_pair.py TYPE FOLDER RUNS SIZES OUT.

Both are in one process, so that both have MKL, the same MLX and the same memory, and each
measurement of one is followed by the other's. SIZES are such as 640x480,1280x960; OUT gets the
numbers as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phyla.backend import prepare

if prepare() != "mkl":
    sys.exit("Towers are compared with MKL, which phyla[cpu] brings on x86-64 Linux.")

# The tables are imported by their package's name, as bench_media.py does.
sys.path.insert(0, str(Path(__file__).parents[1]))

import mlx.core as mx
import numpy as np
from bench_peers.media_models import MEDIA_MODELS
from bench_peers.media_peer import peer_senses

import phyla
from phyla.checkpoint import open_checkpoint
from phyla.engine.media import MediaItem
from phyla.family import MediaRequest
from phyla.media import open_audio, open_image
from phyla.registry import discover
from phyla.testing import Forward

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench_peers.media_peer import PeerSense
    from numpy.typing import NDArray
    from PIL import Image

SECONDS, RATE = 10, 16000


def main() -> None:
    name, folder, runs, out = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[5])
    sizes = [tuple(map(int, size.split("x"))) for size in sys.argv[4].split(",")]
    model = MEDIA_MODELS[name]
    settings = model.preprocessing.get("preprocessor_config.json", {})
    theirs = peer_senses(name, folder, settings)
    ours = Ours(folder)
    rows: list[dict[str, Any]] = []
    if "image" in model.reads:
        for width, height in sizes:
            picture = pillow(photo(width, height))
            row = compared(f"{width} x {height}", picture, ours.image, theirs["image"], runs)
            rows.append(row)
    if "audio" in model.reads:
        row = compared(f"{SECONDS} s of audio", sound(), ours.audio, theirs["audio"], runs)
        rows.append(row)
    record = {"rows": rows, "again": seen_again(folder)}
    out.write_text(json.dumps(record), encoding="utf-8")


def photo(width: int, height: int, seed: int = 0) -> NDArray[np.uint8]:
    """A picture `[H, W, 3]` with smooth shapes, edges and a little noise."""
    rng = np.random.default_rng(seed)
    x, y = np.meshgrid(np.linspace(0, 6, width), np.linspace(0, 4.5, height))
    waves = [np.sin(x * a + y * b + c) for a, b, c in rng.uniform(0.3, 2.5, (3, 3))]
    picture = 128 + 70 * np.stack(waves, axis=-1)
    for _ in range(12):
        left, top = rng.integers(0, width - 60), rng.integers(0, height - 60)
        picture[top : top + 50, left : left + 60] = rng.integers(0, 256, 3)
    picture += rng.normal(0, 4, picture.shape)
    return np.clip(picture, 0, 255).astype(np.uint8)


def pillow(pixels: NDArray[np.uint8]) -> Image.Image:
    """The same as a picture of Pillow's."""
    from PIL import Image

    return Image.fromarray(pixels)


def sound() -> NDArray[np.float32]:
    """Tones that come and go, and a little noise `[SECONDS * RATE]`."""
    rng = np.random.default_rng(0)
    at = np.arange(SECONDS * RATE) / RATE
    tones = sum(np.sin(2 * np.pi * f * at) * np.sin(at * f / 200) ** 2 for f in (220, 550, 1800))
    return (0.2 * tones + rng.normal(0, 0.01, len(at))).astype(np.float32)


@dataclass(frozen=True)
class Looked:
    """What one item took, and the features; `before` is preprocessing.

    Seconds of the clock, and of this process on all CPUs, which other programs lengthen less.
    """

    before: float
    tower: float
    before_cpu: float
    tower_cpu: float
    features: list[NDArray[Any]]

    @property
    def times(self) -> tuple[float, ...]:
        """The four, in order."""
        return self.before, self.tower, self.before_cpu, self.tower_cpu


def looked(before: Callable[[], Any], tower: Callable[[Any], Sequence[mx.array]]) -> Looked:
    """Time both steps of one item."""
    clocks = [(time.perf_counter(), time.process_time())]
    inputs = before()
    clocks.append((time.perf_counter(), time.process_time()))
    features = tower(inputs)
    mx.eval(features)
    clocks.append((time.perf_counter(), time.process_time()))
    (wall, cpu), (middle, middle_cpu), (end, end_cpu) = clocks
    return Looked(
        middle - wall, end - middle, middle_cpu - cpu, end_cpu - middle_cpu,
        [np.array(each) for each in features],
    )  # fmt: skip


class Ours:
    """Phyla's readers and towers, without an engine around them."""

    def __init__(self, folder: Path) -> None:
        checkpoint = open_checkpoint(folder, offline=True)
        forward = Forward(folder)
        family = discover().family_for(checkpoint)
        self.model: Any = forward.model
        self._readers = family.media(forward.config, checkpoint)

    def image(self, picture: Image.Image) -> Looked:
        """Look at a decoded picture."""
        return self._run("image", lambda: open_image(picture))

    def audio(self, samples: NDArray[np.float32]) -> Looked:
        """Listen to samples."""
        return self._run("audio", lambda: open_audio(samples, rate=RATE))

    def _run(self, modality: Any, opened: Callable[[], Any]) -> Looked:
        reader = self._readers.get(modality)
        assert reader is not None, "the checkpoint holds the tower"

        def before() -> MediaItem:
            medium = opened()
            plan = reader.plan(medium, MediaRequest())
            item = MediaItem(modality, 0, medium, reader, plan)
            item.prepare()  # the digest included
            return item

        def tower(item: MediaItem) -> list[mx.array]:
            arrays = {name: mx.array(array) for name, array in item.arrays.items()}
            features = self.model.media_features(modality, arrays)
            return [features.hidden, *features.deep]

        return looked(before, tower)


def compared(
    name: str, item: Any, ours: Callable[[Any], Looked], theirs: PeerSense, runs: int
) -> dict[str, Any]:
    """Times of both, in turn, after a run of each that does not count."""
    sides: dict[str, Callable[[], Looked]] = {
        "ours": lambda: ours(item),
        "theirs": lambda: looked(lambda: theirs.prepare(item), theirs.features),
    }
    features = {side: run().features for side, run in sides.items()}
    times: dict[str, list[tuple[float, ...]]] = {side: [] for side in sides}
    for turn in range(runs):
        for side in sorted(sides, reverse=bool(turn % 2)):
            times[side].append(sides[side]().times)
            shown = ", ".join(f"{each:.3f}" for each in times[side][-1])
            print(f"{name}, {side}: {shown} s", file=sys.stderr, flush=True)
    return {
        "item": name,
        **times,
        "tokens": [len(features[side][0]) for side in sides],
        "difference": _difference(features["ours"], features["theirs"]),
    }


def _difference(ours: list[NDArray[Any]], theirs: list[NDArray[Any]]) -> float | None:
    """The largest difference as a part of the peer's range; None where shapes differ."""
    if [each.shape for each in ours] != [each.shape for each in theirs]:
        return None
    return max(
        float(np.abs(a - b).max() / (b.max() - b.min())) for a, b in zip(ours, theirs, strict=True)
    )


def seen_again(folder: Path) -> dict[str, float]:
    """Seconds to the first token of a picture, and of another question about it."""
    with phyla.load(folder, dtype="float32") as engine:

        def first_token(seed: int, question: str) -> float:
            content = [
                {"type": "image", "source": photo(640, 480, seed=seed)},
                {"type": "text", "text": question},
            ]
            start = time.perf_counter()
            engine.chat(
                [{"role": "user", "content": content}],
                options={"max_tokens": 1, "temperature": 0, "ignore_eos": True},
            )
            return time.perf_counter() - start

        first_token(1, "Warm up.")
        first = first_token(2, "What is it?")
        misses = engine.cache.stats().media_misses
        again = first_token(2, "Where was it taken?")
        ran = engine.cache.stats().media_misses - misses
    return {"first": first, "again": again, "towers run": ran}


if __name__ == "__main__":
    main()
