"""bench.py --types: a row for every model type, on small models made for it.

Phyla and a peer run the same files in float32 with MKL, in turn. Besides, of Phyla alone: what a
token of a prompt of 2,000 costs by what it costs in one of 200, at the fastest of each.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bench_peers.type_models import DRAWN, HYBRID, MODELS
from bench_peers.wire import Process

from phyla.benchmark import DECODE_PROMPT, random_ids

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench_peers.wire import Timed

FOLDER = Path(__file__).parent
PROMPT, SHORT, LONG = 512, 200, 2000
WORKERS = {
    "mlx-lm": ("mlx_lm_worker.py", ("mkl", "bare")),
    "mlx-vlm": ("mlx_vlm_worker.py", ()),
}


@dataclass
class Side:
    """One program's rates, by the name of the measurement, and the greedy tokens of each round."""

    process: Process
    rates: dict[str, list[float]] = field(default_factory=dict)
    tokens: list[tuple[int, ...]] = field(default_factory=list)

    def add(self, name: str, timed: Timed) -> None:
        self.rates.setdefault(name, []).append(timed.rate)


@dataclass(frozen=True)
class Rates:
    """Tokens a second, Phyla's and the peer's: medians, and the highest of all rounds.

    The highest tell more where other programs keep the machine busy, which only ever slows.
    """

    median: tuple[float, float]
    best: tuple[float, float]

    @classmethod
    def of(cls, ours: Side, theirs: Side, name: str) -> Rates:
        """Those of one measurement."""
        both = [side.rates[name] for side in (ours, theirs)]
        median, best = [statistics.median(each) for each in both], [max(each) for each in both]
        return cls((median[0], median[1]), (best[0], best[1]))

    @property
    def cells(self) -> list[str]:
        """Both medians, and how many times faster Phyla is, by medians and by the highest."""
        (ours, theirs), (first, second) = self.median, self.best
        return [f"{ours:.1f}", f"{theirs:.1f}", f"{ours / theirs:.2f} ({first / second:.2f})"]


@dataclass(frozen=True)
class Row:
    """What was measured of one type."""

    name: str
    peer: str
    prefill: Rates
    decode: Rates
    growth: float
    agreement: str
    known: str

    @property
    def record(self) -> dict[str, object]:
        """The row as JSON has it."""
        return {
            "peer": self.peer,
            "prefill": asdict(self.prefill),
            "decode": asdict(self.decode),
            "cost per token at 2000 by 200": self.growth,
            "greedy": self.agreement,
        }


def measure_types(names: Sequence[str], *, runs: int, decode: int) -> list[Row]:
    """Measure one type after another, and tell each row as soon as it is known."""
    rows: list[Row] = []
    for name in names:
        with tempfile.TemporaryDirectory(prefix="phyla-bench-") as scratch:
            folder = _written(name, Path(scratch))
            rows.append(_row(name, folder, runs=runs, decode=decode))
        print(*_cells(rows[-1]), sep="  ", file=sys.stderr, flush=True)
    return rows


def table(rows: Sequence[Row]) -> list[str]:
    """Lines to print: a table, and what is known of the peers."""
    titles = ["type", "peer", f"prefill {PROMPT}", "peer's", "ratio (best)", "decode", "peer's", "ratio (best)",
              f"{LONG} by {SHORT}", "greedy tokens equal"]  # fmt: skip
    lines = [titles, *map(_cells, rows)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(titles))]
    texts = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    notes = [f"{row.name}: of {row.peer} it is known that {row.known}" for row in rows if row.known]
    return [*texts, "", *notes] if notes else texts


def long_decode(steps: int) -> None:
    """Print whether time and memory grow over a long reply of the hybrid models."""
    for name in HYBRID:
        with tempfile.TemporaryDirectory(prefix="phyla-bench-") as scratch:
            folder = _written(name, Path(scratch))
            print(f"{name}, {steps} steps", flush=True)
            _python("long_decode.py", str(folder), str(steps))


def _written(name: str, scratch: Path) -> Path:
    folder = scratch / name
    print(f"writing {name}", file=sys.stderr, flush=True)
    _python("write_model.py", name, str(folder))
    return folder


def _python(script: str, *arguments: str) -> None:
    """Run a script in a process of its own, so that this one never loads MLX."""
    subprocess.run([sys.executable, str(FOLDER / script), *arguments], check=True)


def _row(name: str, folder: Path, *, runs: int, decode: int) -> Row:
    model = MODELS[name]
    script, extra = WORKERS[model.peer]
    with (
        closing(Process(FOLDER / "phyla_worker.py", [str(folder), "float32"])) as worker,
        closing(Process(FOLDER / script, [str(folder), *extra])) as peer,
    ):
        ours, theirs = Side(worker), Side(peer)
        for side in (ours, theirs):
            side.process.decode(_drawn(DECODE_PROMPT, 0), 4)
        for turn in range(runs):
            for side in (ours, theirs) if turn % 2 else (theirs, ours):
                side.add("prefill", side.process.prefill(_drawn(PROMPT, 4 * turn + 1)))
                timed = side.process.decode(_drawn(DECODE_PROMPT, 4 * turn + 2), decode)
                side.add("decode", timed)
                side.tokens.append(timed.tokens)
            for size in (SHORT, LONG):
                ours.add(str(size), ours.process.prefill(_drawn(size, 4 * turn + 3)))
    return Row(
        name=name,
        peer=model.peer,
        prefill=Rates.of(ours, theirs, "prefill"),
        decode=Rates.of(ours, theirs, "decode"),
        growth=max(ours.rates[str(SHORT)]) / max(ours.rates[str(LONG)]),
        agreement=_agreement(ours.tokens, theirs.tokens),
        known=model.known,
    )


def _drawn(count: int, seed: int) -> list[int]:
    return random_ids(count, vocab_size=DRAWN, seed=seed)


def _agreement(ours: Sequence[tuple[int, ...]], theirs: Sequence[tuple[int, ...]]) -> str:
    """How many tokens are equal up to the first that is not, over all rounds."""
    same = total = 0
    for mine, other in zip(ours, theirs, strict=True):
        pairs = list(zip(mine, other, strict=True))
        total += len(pairs)
        same += next((place for place, (a, b) in enumerate(pairs) if a != b), len(pairs))
    return f"{same} of {total}"


def _cells(row: Row) -> list[str]:
    return [
        row.name,
        row.peer,
        *row.prefill.cells,
        *row.decode.cells,
        f"{row.growth:.2f}",
        row.agreement,
    ]
