"""One step of several lines: who is fed, whose tokens are seen, and what is taken back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
import pytest

from phyla.engine.decode import Line, step
from phyla.engine.engine import Engine, load
from phyla.engine.resolve import ResolvedOptions
from phyla.engine.sampling import Sampled, Sampler
from phyla.testing import prompt_ids, write_checkpoint
from phyla.testing.mixed import mixed, mixed_registry

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LENGTHS = (5, 9, 3)
GREEDY = ResolvedOptions(seed=0, temperature=0.0)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    registry = mixed_registry()
    folder = tmp_path_factory.mktemp("tiny") / "mixed"
    write_checkpoint(folder, mixed("rwf"), registry=registry)
    with load(folder, registry=registry, dtype="float32") as engine:
        yield engine


def begun(engine: Engine, count: int, *, limit: int) -> Line:
    """A line after a prompt of so many tokens; to be called on the engine's thread."""
    runtime = engine.machine.loaded.runtime
    cursor = runtime.cursor(runtime.allocation.layers(), extent=count + limit, reserve=0)
    logits = cursor.prefill(prompt_ids(count, seed=count), chunk=64)
    return Line(cursor, logits, Sampler(GREEDY, runtime.vocab_size), limit=limit)


def run(
    lines: Sequence[Line], stops: Sequence[int], *, run_ahead: bool
) -> tuple[list[list[int]], list[int]]:
    """The tokens of lines that end by themselves or after `stops`, and how much each was fed."""
    told: dict[int, list[int]] = {id(line): [] for line in lines}
    most = {id(line): stop for line, stop in zip(lines, stops, strict=True)}

    def take(line: Line, sampled: Sampled) -> bool:
        told[id(line)].append(sampled.token_id())
        return len(told[id(line)]) < most[id(line)]

    going = list(lines)
    while going:
        going = step(going, take, run_ahead=run_ahead)
    mx.eval([line.cursor.layers.arrays for line in lines])
    return [told[id(line)] for line in lines], [line.cursor.length for line in lines]


@pytest.mark.parametrize("run_ahead", [False, True])
@pytest.mark.parametrize("stops", [(2, 6, 9), (9, 1, 3), (9, 9, 9), (4, 4, 4)])
def test_a_line_that_ends_harms_no_other_and_is_fed_no_more_than_it_has_to_be(
    engine: Engine, stops: tuple[int, ...], run_ahead: bool
) -> None:
    limit = 7

    def alone() -> list[list[int]]:
        return [
            run([begun(engine, n, limit=limit)], [limit], run_ahead=False)[0][0] for n in LENGTHS
        ]

    def together() -> tuple[list[list[int]], list[int]]:
        lines = [begun(engine, count, limit=limit) for count in LENGTHS]
        return run(lines, stops, run_ahead=run_ahead)

    expected = engine.machine.call(alone)
    told, fed = engine.machine.call(together)
    for one, other, stop in zip(told, expected, stops, strict=True):
        assert one == other[: min(stop, limit)]
    for length, count, stop in zip(LENGTHS, fed, stops, strict=True):
        # The last token of a line is fed only where the next step starts before it is seen.
        several = sum(other >= stop for other in stops) > 1
        ahead = stop < limit and (run_ahead or several)
        assert count - length == min(stop, limit) - 1 + ahead


@pytest.mark.parametrize("run_ahead", [False, True])
def test_a_line_that_was_stopped_among_others_goes_on_as_if_it_had_not(
    engine: Engine, run_ahead: bool
) -> None:
    def check() -> None:
        whole = run([begun(engine, 5, limit=9)], [9], run_ahead=False)[0][0]
        lines = [begun(engine, 5, limit=20), begun(engine, 9, limit=20)]
        told, _ = run(lines, [4, 8], run_ahead=run_ahead)
        cursor = lines[0].cursor
        last = told[0][-1:] if cursor.length == 5 + 3 else []
        logits = cursor.prefill(last, chunk=8) if last else lines[0].logits
        rest = Line(cursor, logits, Sampler(GREEDY, 264), limit=5)
        assert told[0] + run([rest], [5], run_ahead=False)[0][0] == whole

    engine.machine.call(check)
