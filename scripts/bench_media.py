"""Compares what seeing and hearing cost in Phyla and in mlx-vlm: the same towers, in the same run.

    python scripts/bench_media.py
    python scripts/bench_media.py --types qwen3_vl,gemma4 --runs 7 --json FILE

For every model type that reads media a checkpoint is written with random weights, whose towers have
a published width and few layers. Each line is one image or sound: preprocessing (of a decoded
picture, or of samples), the tower with its projector, and both, in milliseconds; medians of
interleaved runs. A ratio is how many times faster Phyla is, and best is that of the fastest runs,
which tells more where other programs keep the machine busy. Features are compared as a part of
their range. The CPU ratio is that of the sum in CPU time, which other programs lengthen less.

Phyla's preprocessing includes the digest that its cache of features knows a picture by. Below each
model stands what that cache gives: time to the first token of a picture, and of another question
about the same.

Both run in float32 with MKL. Needs the `parity` and `media` extras, and mlx-vlm.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench_peers.media_models import MEDIA_MODELS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FOLDER = Path(__file__).parent / "bench_peers"
TITLES = ("item", "tokens", "before", "mlx-vlm", "ratio", "tower", "mlx-vlm", "ratio",
          "sum", "mlx-vlm", "ratio (best)", "CPU ratio", "features differ by")  # fmt: skip


def main() -> None:
    options = _options()
    records: dict[str, Any] = {}
    for name in options.types:
        with tempfile.TemporaryDirectory(prefix="phyla-bench-") as scratch:
            folder = _written(name, options.folder or Path(scratch))
            out = Path(scratch) / "out.json"
            arguments = [str(options.runs), options.sizes]
            _python("media_pair.py", name, str(folder), *arguments, str(out))
            records[name] = json.loads(out.read_text(encoding="utf-8"))
        for text in _table(name, records[name]):
            print(text, flush=True)
    if options.json:
        options.json.write_text(json.dumps(records, indent=2) + "\n", encoding="utf-8")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--types", type=_types, default=tuple(MEDIA_MODELS), metavar="NAME,...")
    parser.add_argument("--runs", type=int, default=5, help="runs to take medians of (5)")
    parser.add_argument(
        "--sizes", default="640x480,1280x960", metavar="WxH,...", help="of the images"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every value there")
    parser.add_argument(
        "--folder", type=Path, metavar="DIR", help="keep the checkpoints there, and use them again"
    )
    return parser.parse_args()


def _types(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    for name in names:
        if name not in MEDIA_MODELS:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(MEDIA_MODELS)}")
    return names


def _written(name: str, parent: Path) -> Path:
    folder = parent / name
    if not (folder / "config.json").exists():
        print(f"writing {name}", file=sys.stderr, flush=True)
        _python("write_media_model.py", name, str(folder))
    return folder


def _python(script: str, *arguments: str) -> None:
    """Run a script in a process of its own, so that this one never loads MLX."""
    subprocess.run([sys.executable, str(FOLDER / script), *arguments], check=True)


def _table(name: str, record: dict[str, Any]) -> Iterator[str]:
    lines = [[name, *TITLES[1:]], *map(_cells, record["rows"])]
    widths = [max(len(line[place]) for line in lines) for place in range(len(TITLES))]
    for line in lines:
        cells = [line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]
        yield "  ".join(cells)
    again = record["again"]
    yield (
        f"first token of a picture {again['first']:.2f} s, of another question about it "
        f"{again['again']:.2f} s; the tower ran {again['towers run']} times for that"
    )
    if known := MEDIA_MODELS[name].known:
        yield f"of mlx-vlm it is known that {known}"
    yield ""


def _cells(row: dict[str, Any]) -> list[str]:
    cells = [row["item"], " / ".join(map(str, dict.fromkeys(row["tokens"])))]
    for part in (0, 1, None):
        ours, theirs = (_seconds(row[side], part) for side in ("ours", "theirs"))
        ratio = f"{statistics.median(theirs) / statistics.median(ours):.2f}"
        if part is None:
            ratio += f" ({min(theirs) / min(ours):.2f})"
        cells += [
            f"{1000 * statistics.median(ours):.1f}",
            f"{1000 * statistics.median(theirs):.1f}",
        ]
        cells.append(ratio)
    ours, theirs = ([run[2] + run[3] for run in row[side]] for side in ("ours", "theirs"))
    cells.append(f"{statistics.median(theirs) / statistics.median(ours):.2f}")
    difference = row["difference"]
    return [*cells, "other shapes" if difference is None else f"{difference:.1e}"]


def _seconds(runs: Sequence[Sequence[float]], part: int | None) -> list[float]:
    return [run[0] + run[1] if part is None else run[part] for run in runs]


if __name__ == "__main__":
    main()
