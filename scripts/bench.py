"""Compares Phyla with other programs: the same weights, in the same run, on the same prompts.

    python scripts/bench.py MODEL --peers mlx-lm,mlx-lm+mkl
    python scripts/bench.py --types

Every peer is a process of its own. Measurements are interleaved: each is taken of every peer in
turn, in rotating order, before it is repeated. The table shows medians, lowest and highest, and how
many times better Phyla is: faster, or with less time or memory.

With --streams N,N it measures instead how many tokens a second come when so many prompts are
answered at once (mlx-lm: its BatchGenerator), and with --warm N how soon the first token of a
prompt of N tokens comes when the prompt cache holds it, as a part of the time without.

With --types it measures instead, for every model type or the named ones, small models made for it
next to mlx-lm, or to mlx-vlm where mlx-lm has no such type: no MODEL is named. With --long-decode N
it measures whether time per step and memory grow over N steps of hybrid models. Both need the
references: pip install -e '.[parity]'.

With --classifier it measures instead what reading a reply costs: detokenizing it and splitting it
into answer, reasoning and tool calls, as a share of a decode step.

Peers:
    mlx-lm      as its users get it: a folder as it is; a GGUF file, which it cannot read, with the
                weights that Phyla holds.
    mlx-lm+mkl  on a CPU: the weights in float32, and MKL loaded before MLX, as Phyla does it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from bench_peers.every_type import long_decode, measure_types, table
from bench_peers.type_models import MODELS
from bench_peers.wire import Process

from phyla.benchmark import DECODE_PROMPT, PROMPT_SIZES, random_ids
from phyla.cli.units import size_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from bench_peers.wire import Timed

FOLDER = Path(__file__).parent / "bench_peers"
OURS = "phyla"
KNOWN = ("mlx-lm", "mlx-lm+mkl")

# What each option measures instead of the comparison, and the options that it goes by.
COMPARED = frozenset(
    {"model", "peers", "runs", "loads", "prompt_sizes", "decode", "dtype", "budget", "json"}
)
INSTEAD: Mapping[str, frozenset[str]] = {
    "streams": COMPARED - {"prompt_sizes"},
    "warm": frozenset({"model", "runs"}),
    "classifier": frozenset({"model", "runs", "decode", "dtype"}),
    "types": frozenset({"runs", "decode", "json"}),
    "long_decode": frozenset(),
}


_SIZES_HELP = f"tokens of the prompts ({','.join(map(str, PROMPT_SIZES))}, as far as they fit)"


@dataclass
class Peer:
    """A program in the comparison, and what was measured of it by the name of the measurement."""

    name: str
    start: Callable[[], Process]
    process: Process | None = None
    values: dict[str, list[float]] = field(default_factory=dict)
    tokens: dict[tuple[str, int], tuple[int, ...]] = field(default_factory=dict)
    slow: set[str] = field(default_factory=set)

    def add(self, measurement: str, value: float) -> None:
        self.values.setdefault(measurement, []).append(value)

    @property
    def running(self) -> Process:
        assert self.process is not None
        return self.process


@dataclass(frozen=True)
class Measurement:
    """One row of the table."""

    name: str
    unit: str
    higher_is_better: bool
    text: Callable[[float], str]

    def ratio(self, ours: Sequence[float], theirs: Sequence[float]) -> float:
        """How many times better ours are, by medians."""
        ratio = statistics.median(ours) / statistics.median(theirs)
        return ratio if self.higher_is_better else 1 / ratio


def main() -> None:
    options = _options()
    if options.types or options.long_decode:
        _measure_types(options)
        return
    if options.classifier:
        _measure_classifier(options)
        return
    if options.warm:
        _measure_warm(options)
        return
    dtype = ["--dtype", options.dtype] if options.dtype else []
    report = json.loads(_run(["-m", "phyla.cli", "inspect", options.model, "--json", *dtype]))
    options.prompt_sizes = _fitting_sizes(options, report["context"])
    held = report["precision"]["weights"]
    with tempfile.TemporaryDirectory(prefix="phyla-bench-") as scratch:
        folder = Path(scratch)
        peers = [_ours(options), *(_theirs(name, options, held, folder) for name in options.peers)]
        try:
            _start(peers, options.loads)
            rows = _measure(peers, options, report["vocab_size"])
        finally:
            for peer in peers:
                if peer.process is not None:
                    peer.process.close()
    print()
    for text in _table(peers, rows):
        print(text)
    if options.json:
        options.json.write_text(json.dumps(_record(peers, rows, options), indent=2) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", nargs="?", help="a folder, a Hub id, a .gguf file, or demo")
    parser.add_argument("--peers", type=_peers, default=["mlx-lm"], help="names with commas")
    parser.add_argument("--runs", type=_count, default=5, help="rounds to take medians of (5)")
    parser.add_argument("--loads", type=_count, default=3, help="times to start each peer (3)")
    parser.add_argument("--prompt-sizes", type=_sizes, metavar="N,N,...", help=_SIZES_HELP)
    parser.add_argument("--decode", type=_several, default=64, help="tokens to write (64)")
    parser.add_argument("--dtype", help="as for phyla.load")
    parser.add_argument(
        "--budget",
        type=float,
        default=60,
        metavar="SECONDS",
        help="what takes a peer longer than this is measured once only (60)",
    )
    parser.add_argument(
        "--classifier", action="store_true", help="measure what reading a reply costs, and no peer"
    )
    parser.add_argument(
        "--streams", type=_sizes, metavar="N,N,...", help="measure so many prompts at once"
    )
    parser.add_argument(
        "--warm",
        type=_count,
        metavar="N",
        help="measure the prompt cache with N tokens, and no peer",
    )
    parser.add_argument(
        "--types",
        type=_types,
        nargs="?",
        const=tuple(MODELS),
        metavar="NAME,...",
        help="measure small models of every type, or of these",
    )
    parser.add_argument(
        "--long-decode",
        type=_count,
        metavar="N",
        help="measure N steps of hybrid models, and no peer",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every value there")
    options = parser.parse_args()
    _check(parser, options)
    return options


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Refuse what would be left out in silence."""
    # Parsed again onto an empty form: a default fills no place that is there.
    form = argparse.Namespace(**dict.fromkeys(vars(options)))
    filled = vars(parser.parse_args(namespace=form))
    given = {name for name, value in filled.items() if value is not None}
    chosen = [name for name in INSTEAD if name in given]
    if len(chosen) > 1 and chosen != ["types", "long_decode"]:
        parser.error(f"{_flags(chosen)} measure different things: give one of them")
    if ("model" in given) == ("types" in chosen or "long_decode" in chosen):
        parser.error("name a MODEL, or --types or --long-decode, which bring their own")
    used = frozenset[str]().union(*(INSTEAD[name] for name in chosen)) if chosen else COMPARED
    unused = given - used - set(chosen)
    if unused:
        parser.error(f"{_flags(chosen)} does not go by {_flags(sorted(unused))}")
    if options.long_decode is not None and options.long_decode < 150:
        parser.error("--long-decode needs at least 150 steps, for a trend to show")


def _flags(names: Sequence[str]) -> str:
    return " and ".join("--" + name.replace("_", "-") for name in names)


def _fitting_sizes(options: argparse.Namespace, context: int | None) -> tuple[int, ...]:
    """The sizes of prompts to measure; what has no room in the context is refused, or left out.

    Before anything is loaded: minutes would be spent on the peers before ours says so.
    """
    sizes = options.prompt_sizes
    if context is None:
        return sizes or PROMPT_SIZES
    # A prompt is read for its first token's sake, and that needs a place too.
    long = [str(size) for size in sizes or () if size >= context]
    if long:
        sys.exit(
            f"bench.py: error: --prompt-sizes {','.join(long)}: the model has room for {context} "
            f"tokens, so a prompt may have {context - 1} at most"
        )
    if DECODE_PROMPT + options.decode > context:
        sys.exit(
            f"bench.py: error: --decode {options.decode}: the model has room for {context} tokens, "
            f"and {DECODE_PROMPT} of them are the prompt's"
        )
    return sizes or tuple(size for size in PROMPT_SIZES if size < context)


def _count(text: str) -> int:
    return _at_least(1, text)


def _several(text: str) -> int:
    return _at_least(2, text)  # the first token comes with the prompt: one has no rate


def _at_least(least: int, text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from None
    if number < least:
        raise argparse.ArgumentTypeError(f"{number} is not at least {least}")
    return number


def _peers(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in KNOWN:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(KNOWN)}")
    return names


def _types(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    for name in names:
        if name not in MODELS:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(MODELS)}")
    return names


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(map(_count, text.split(",")))


# The peers.


def _ours(options: argparse.Namespace) -> Peer:
    arguments = [options.model, *([options.dtype] if options.dtype else [])]
    return Peer(OURS, lambda: Process(FOLDER / "phyla_worker.py", arguments))


def _theirs(name: str, options: argparse.Namespace, held: str, scratch: Path) -> Peer:
    """A peer, with a folder that it can read; `held` is how Phyla holds the weights."""
    mkl = name == "mlx-lm+mkl"
    if Path(options.model).is_dir() and not mkl:
        folder = Path(options.model)
    else:
        form = "float32" if mkl else held
        folder = scratch / form
        if not folder.exists():
            _tell(f"writing the weights ({form}) for mlx-lm")
            _run([str(FOLDER / "export.py"), options.model, str(folder), form])
    arguments = [str(folder), *(["mkl"] if mkl else [])]
    return Peer(name, lambda: Process(FOLDER / "mlx_lm_worker.py", arguments))


def _run(arguments: Sequence[str]) -> str:
    """Run Python in a process of its own, so that this one never loads MLX."""
    command = [sys.executable, *arguments]
    finished = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if finished.returncode:
        sys.exit(finished.returncode)  # it has said why
    return finished.stdout


# The measurements.


def _start(peers: Sequence[Peer], loads: int) -> None:
    """Start every peer `loads` times, in turn; the last process of each stays."""
    for turn in range(loads):
        for peer in _rotated(peers, turn):
            if peer.process is not None:
                peer.process.close()
            peer.process = process = peer.start()
            peer.add("load", process.load_seconds)
            peer.add("start", process.start_seconds)
            _tell(f"{peer.name}: loaded in {process.load_seconds:.2f} s")


def _measure(
    peers: Sequence[Peer], options: argparse.Namespace, vocab_size: int
) -> list[Measurement]:
    tasks = _streams(options) if options.streams else _single(options)

    for peer in peers:
        peer.running.decode(random_ids(DECODE_PROMPT, vocab_size=vocab_size, seed=0), 4)
    for turn in range(options.runs):
        for place, (name, size, task) in enumerate(tasks):
            ids = random_ids(size, vocab_size=vocab_size, seed=1 + turn * len(tasks) + place)
            for peer in _rotated(peers, turn + place):
                if name in peer.slow:
                    continue
                timed = task(peer.running, ids)
                peer.add(name, timed.rate)
                peer.tokens[name, turn] = timed.tokens
                if timed.wall > options.budget:
                    peer.slow.add(name)
                _tell(f"round {turn + 1}, {name}: {peer.name} {timed.rate:.1f} tokens/s")
    for peer in peers:
        peer.add("memory", peer.running.peak_bytes())

    def rate(value: float) -> str:
        return f"{value:.1f}"

    def seconds(value: float) -> str:
        return f"{value:.2f} s"

    return [
        *(Measurement(name, "tokens/s", True, rate) for name, _, _ in tasks),
        Measurement("load", "", False, seconds),
        Measurement("start", "", False, seconds),
        Measurement("memory", "", False, size_text),
    ]


_Task: TypeAlias = "tuple[str, int, Callable[[Process, list[int]], Timed]]"


def _single(options: argparse.Namespace) -> list[_Task]:
    tasks: list[_Task] = [
        (f"prefill {size}", size, lambda process, ids: process.prefill(ids))
        for size in options.prompt_sizes
    ]
    decode = f"decode {options.decode}"
    tasks.append((decode, DECODE_PROMPT, lambda process, ids: process.decode(ids, options.decode)))
    return tasks


def _streams(options: argparse.Namespace) -> list[_Task]:
    def task(count: int) -> _Task:
        def run(process: Process, ids: list[int]) -> Timed:
            prompts = [
                ids[start : start + DECODE_PROMPT] for start in range(0, len(ids), DECODE_PROMPT)
            ]
            return process.streams(prompts, options.decode)

        return f"{count} at once", count * DECODE_PROMPT, run

    return [task(count) for count in options.streams]


def _rotated(peers: Sequence[Peer], turn: int) -> list[Peer]:
    first = turn % len(peers)
    return [*peers[first:], *peers[:first]]


def _measure_types(options: argparse.Namespace) -> None:
    if options.types:
        rows = measure_types(options.types, runs=options.runs, decode=options.decode)
        for text in table(rows):
            print(text)
        if options.json:
            record = {row.name: row.record for row in rows}
            options.json.write_text(json.dumps(record, indent=2) + "\n")
    if options.long_decode:
        long_decode(options.long_decode)


def _measure_classifier(options: argparse.Namespace) -> None:
    arguments = [str(FOLDER / "classifier.py"), options.model]
    for name in ("dtype", "decode", "runs"):
        if (value := getattr(options, name)) is not None:
            arguments += [f"--{name}", str(value)]
    print(_run(arguments), end="")


def _measure_warm(options: argparse.Namespace) -> None:
    arguments = [str(FOLDER / "warm.py"), options.model, str(options.warm), str(options.runs)]
    print(_run(arguments), end="")


# The result.


def _table(peers: Sequence[Peer], rows: Sequence[Measurement]) -> Iterator[str]:
    ours, *others = peers
    lines = [["", OURS, *(text for peer in others for text in (peer.name, "ratio"))]]
    for row in rows:
        line = [f"{row.name} {row.unit}".strip(), _cell(row, ours)]
        for peer in others:
            ratio = row.ratio(ours.values[row.name], peer.values[row.name])
            line += [_cell(row, peer), f"{ratio:.2f}"]
        lines.append(line)
    widths = [max(len(line[place]) for line in lines) for place in range(len(lines[0]))]
    for line in lines:
        cells = [line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]
        yield "  ".join(cells).rstrip()
    yield ""
    for peer in others:
        yield f"{peer.name}: {peer.running.about}; {_agreement(ours, peer)}"


def _cell(row: Measurement, peer: Peer) -> str:
    values = peer.values[row.name]
    text = row.text(statistics.median(values))
    if len(values) > 1:
        text += f" ({row.text(min(values))}-{row.text(max(values))})"
    elif row.name in peer.slow:
        text += " (once)"
    return text


def _agreement(ours: Peer, theirs: Peer) -> str:
    """How many greedy tokens are Phyla's, up to the first that is not, over all prompts."""
    same = total = 0
    for key, tokens in theirs.tokens.items():
        mine = ours.tokens[key]
        pairs = list(zip(mine, tokens, strict=True))
        total += len(pairs)
        same += next((place for place, (a, b) in enumerate(pairs) if a != b), len(pairs))
    return f"{same} of {total} greedy tokens equal to Phyla's (a line counts up to its first other)"


def _record(
    peers: Sequence[Peer], rows: Sequence[Measurement], options: argparse.Namespace
) -> dict[str, object]:
    ours, *others = peers
    return {
        "model": options.model,
        "values": {peer.name: peer.values for peer in peers},
        "ratios": {
            peer.name: {
                row.name: row.ratio(ours.values[row.name], peer.values[row.name]) for row in rows
            }
            for peer in others
        },
        "versions": {peer.name: peer.running.about for peer in peers},
    }


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
