"""A session computes nothing that nobody asked for."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.core.engine.session.sessions import DRAWN, GREEDY, PROMPT, begun, running, strand

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import mlx.core as mx

    import phyla
    from phyla.family import Step


class Counts:
    """How many tokens went through a model, and for how many of them logits were computed."""

    def __init__(self) -> None:
        self.fed: list[int] = []
        self.logits = 0


@contextmanager
def counting(engine: phyla.Engine) -> Iterator[Counts]:
    counts = Counts()
    kind = type(engine.machine.loaded.runtime.model)
    call, logits = kind.__call__, kind.logits

    def calling(self: Any, hidden: mx.array, step: Step, caches: Sequence[Any]) -> mx.array:
        counts.fed.append(hidden.shape[1])
        return call(self, hidden, step, caches)

    def projecting(self: Any, hidden: mx.array) -> mx.array:
        counts.logits += 1
        return logits(self, hidden)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "__call__", calling)
        patch.setattr(kind, "logits", projecting)
        yield counts


@pytest.mark.parametrize("options", [GREEDY, DRAWN, {**DRAWN, "top_p": 0.8}])
def test_nothing_is_computed_that_nobody_asked_for(
    every: phyla.Engine, options: Mapping[str, Any], ahead: bool
) -> None:
    with running(every, ahead=ahead), every.session() as session, counting(every) as counts:
        session.append_tokens(PROMPT)
        assert (sum(counts.fed), counts.logits) == (len(PROMPT) - 1, 0)
        for _ in range(2):
            before = len(counts.fed), counts.logits
            session.generate({**options, "max_tokens": 4})
            assert counts.fed[before[0] :] == [1] * 4
            assert counts.logits - before[1] == 4
        session.append_tokens([1, 2, 3])
        assert sum(counts.fed) == session.position - 1
        assert counts.logits == 8
        session.generate({**options, "max_tokens": 1})
        assert (sum(counts.fed), counts.logits) == (session.position - 1, 9)


def test_what_an_end_of_turn_makes_needless_is_not_kept(every: phyla.Engine) -> None:
    eos = min(every.eos)
    options = {**GREEDY, "ignore_eos": False, "logit_bias": {eos: 1e4}}
    with running(every, ahead=False), begun(every) as session:
        session.generate(options)
        assert strand(session).cursor.length == session.position - 1
        assert strand(session).logits is None
