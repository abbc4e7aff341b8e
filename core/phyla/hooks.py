"""The hooks that a plugin may implement (pluggy, project `phyla`).

Hooks fire when a model is loaded, a request starts or the program starts, and hand back typed
objects; the decode loop calls those objects and never pluggy. A plugin is a module named by an
entry point of the group `phyla.families` or `phyla.plugins`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import pluggy

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import mlx.core as mx
    import typer

    from phyla.events import Reply
    from phyla.family import Family
    from phyla.options import Options

PROJECT = "phyla"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


class LogitsProcessor(Protocol):
    """Changes the logits of one request before sampling; called once per step, in order."""

    def __call__(self, tokens: Sequence[int], logits: mx.array) -> mx.array:
        """Return new logits `[V]` float32, given the ids generated so far."""
        ...


@dataclass(frozen=True)
class AnswerOnly:
    """A processor that leaves reasoning alone, such as a grammar for the answer.

    It is called outside reasoning only, with the ids that came since the last reasoning ended.
    """

    processor: LogitsProcessor

    def __call__(self, tokens: Sequence[int], logits: mx.array) -> mx.array:
        """Do what the processor does."""
        return self.processor(tokens, logits)


@runtime_checkable
class Observer(Protocol):
    """Is told of each request's end; must be quick, since it runs on the engine's thread."""

    def finished(self, reply: Reply) -> None:
        """Take note of a finished request."""
        ...


@hookspec
def phyla_provide_families() -> Iterable[Family]:  # pyright: ignore[reportReturnType]
    """Fires once, when a family is first asked for: return the families this plugin brings."""


@hookspec
def phyla_logits_processors(request: Options) -> Iterable[LogitsProcessor]:  # pyright: ignore[reportReturnType]
    """Fires when a request starts: return the processors that it should run through."""


@hookspec
def phyla_commands(app: typer.Typer) -> None:
    """Fires when the command line starts: add commands to `app`.

    Only plugins of the group `phyla.plugins` are asked, so that starting imports no family.
    """


@hookspec
def phyla_observers() -> Iterable[Observer]:  # pyright: ignore[reportReturnType]
    """Fires when an engine is made: return the observers that want to hear of its requests."""
