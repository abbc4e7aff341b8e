"""`phyla bench`: how fast a model runs here."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from phyla.benchmark import (
    DECODE_PROMPT,
    PROMPT_SIZES,
    Sample,
    peak_memory,
    random_ids,
    time_decode,
    time_prefill,
)
from phyla.cli import arguments  # noqa: TC001 (read by Typer)
from phyla.cli.shell import ModelChoice, Shell, working
from phyla.cli.tables import print_table
from phyla.cli.units import size_text
from phyla.errors import ContextOverflowError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from phyla.engine.engine import Engine


@dataclass(frozen=True, kw_only=True)
class Rate:
    """Tokens per second in several runs."""

    median: float
    low: float
    high: float
    runs: int


@dataclass(frozen=True, kw_only=True)
class BenchReport:
    """What `phyla bench --json` prints.

    Attributes:
        load_seconds: from opening the checkpoint to being ready.
        prefill: by the prompt's tokens.
        decode: after a prompt of `decode_prompt` tokens.
        peak_bytes: the most memory that the process held.
    """

    model: str
    family: str
    load_seconds: float
    prefill: dict[int, Rate]
    decode: Rate
    decode_tokens: int
    decode_prompt: int
    peak_bytes: int


def bench(
    context: typer.Context,
    model: arguments.Model,
    *,
    prompt_sizes: Annotated[
        str | None,
        typer.Option(
            metavar="N,N,...",
            help="Tokens of the prompts; 32,512,2048 as far as they fit the context if absent.",
        ),
    ] = None,
    decode: Annotated[int, typer.Option(min=2, help="Tokens to write.")] = 64,
    runs: Annotated[int, typer.Option(min=1, help="Runs to take the median of.")] = 3,
    json: arguments.Json = False,
    family: arguments.Family = None,
    revision: arguments.Revision = None,
    offline: arguments.Offline = False,
    dtype: arguments.Dtype = None,
    max_context: arguments.MaxContext = None,
    kv_bits: arguments.KvBits = None,
) -> None:
    """Measure how fast a model reads prompts and writes replies here.

    Medians of several runs, interleaved, after one for warming up. Prompts are random tokens, new
    ones for every run.
    """
    sizes = None if prompt_sizes is None else read_sizes(prompt_sizes)
    started = time.perf_counter()
    with Shell.of(context).engine(ModelChoice.of(context)) as engine:
        loaded = time.perf_counter() - started
        sizes = _fitting(engine, sizes, decode)
        with working("Measuring"):
            report = _measure(engine, sizes, decode=decode, runs=runs, load_seconds=loaded)
    if json:
        from json import dumps

        typer.echo(dumps(asdict(report), ensure_ascii=False))
    else:
        _print(report)


def read_sizes(text: str) -> tuple[int, ...]:
    """Read `32,512`.

    Raises:
        typer.BadParameter: it is no list of positive numbers.
    """
    try:
        sizes = tuple(int(part) for part in text.split(","))
    except ValueError:
        sizes = (0,)
    if min(sizes) < 1:
        raise typer.BadParameter(
            f"should be positive numbers with commas between, such as 32,512, found {text!r}",
            param_hint="--prompt-sizes",
        )
    return sizes


def _fitting(engine: Engine, sizes: Sequence[int] | None, decode: int) -> Sequence[int]:
    """The sizes to measure; an error, before minutes are spent, if one cannot be."""
    if sizes is None:
        sizes = [size for size in PROMPT_SIZES if size < engine.context]
    needed = max(DECODE_PROMPT + decode, *(size + 1 for size in sizes))
    if needed > engine.context:
        raise ContextOverflowError(limit=engine.context, excess=needed - engine.context)
    return sizes


def _measure(
    engine: Engine, sizes: Sequence[int], *, decode: int, runs: int, load_seconds: float
) -> BenchReport:
    vocab_size = engine.tokenizer.vocab_size

    def prompt(size: int, run: int) -> list[int]:
        return random_ids(size, vocab_size=vocab_size, seed=run * 1_000_003 + size)

    time_decode(engine, prompt(DECODE_PROMPT, runs), 2)
    prefill: dict[int, list[float]] = {size: [] for size in sizes}
    decoded: list[float] = []
    for run in range(runs):
        for size, rates in prefill.items():
            rates.append(time_prefill(engine, prompt(size, run)).tokens_per_second)
        timed = time_decode(engine, prompt(DECODE_PROMPT, run + runs + 1), decode)
        decoded.append(timed.tokens_per_second)
    return BenchReport(
        model=engine.name,
        family=engine.family,
        load_seconds=load_seconds,
        prefill={size: _rate(rates) for size, rates in prefill.items()},
        decode=_rate(decoded),
        decode_tokens=decode,
        decode_prompt=DECODE_PROMPT,
        peak_bytes=peak_memory(),
    )


def _rate(values: list[float]) -> Rate:
    sample = Sample.of(values)
    return Rate(median=sample.median, low=sample.low, high=sample.high, runs=len(values))


def _print(report: BenchReport) -> None:
    rows = [[f"prefill, {size} tokens", *_cells(rate)] for size, rate in report.prefill.items()]
    rows.append([f"decode, {report.decode_tokens} tokens", *_cells(report.decode)])
    print_table(["", "tokens/s", "lowest", "highest", "runs"], rows, right=4)
    sys.stdout.write(
        f"\n{report.model} ({report.family}): loaded in {report.load_seconds:.2f} s, "
        f"peak memory {size_text(report.peak_bytes)}\n"
    )


def _cells(rate: Rate) -> list[str]:
    return [f"{rate.median:.1f}", f"{rate.low:.1f}", f"{rate.high:.1f}", str(rate.runs)]
