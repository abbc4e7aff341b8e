"""What all commands share: the installed plugins, and how a model is opened."""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from phyla.cli.interrupt import leave, leaving_at_once
from phyla.cli.senses import check_senses
from phyla.errors import RequestError
from phyla.kv_quantization import read_kv_quantization
from phyla.registry import discover

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import NoReturn

    import typer
    from typing_extensions import Self

    from phyla.engine.engine import Engine
    from phyla.modality import Modality
    from phyla.registry import Registry


@dataclass(frozen=True, kw_only=True)
class ModelChoice:
    """Which model to open and how, as `phyla.load` takes it.

    Attributes:
        needed: what it will have to read beside text, item by item.
    """

    source: str
    family: str | None = None
    revision: str | None = None
    offline: bool | None = None
    dtype: str | None = None
    max_context: int | None = None
    kv_bits: str | None = None
    needed: tuple[Modality, ...] = ()

    @classmethod
    def of(cls, context: typer.Context, *, needed: tuple[Modality, ...] = ()) -> Self:
        """What the options of a running command choose; all commands name them alike."""
        given = {
            field.name: context.params.get(field.name)
            for field in fields(cls)
            if field.name not in ("source", "needed")
        }
        # The option can only be turned on; left out, the environment decides.
        given["offline"] = given["offline"] or None
        return cls(source=context.params["model"], needed=needed, **given)


@dataclass(frozen=True, kw_only=True)
class Shell:
    """Handed to every command as its context's object.

    Attributes:
        registry: the plugins.
        open_engine: opens a model.
        leave: ends the process at once; what Ctrl-C does before a reply begins.
    """

    registry: Registry
    open_engine: Callable[[ModelChoice, Registry], Engine]
    leave: Callable[[], NoReturn] = leave

    @classmethod
    def installed(cls) -> Self:
        """With the plugins that are installed here."""
        return cls(registry=discover(), open_engine=open_engine)

    @classmethod
    def of(cls, context: typer.Context) -> Self:
        """The one that belongs to a running command."""
        shell = context.find_object(cls)
        assert shell is not None, "the program runs with a Shell as its context's object"
        return shell

    def engine(self, choice: ModelChoice) -> Engine:
        """Open a model.

        Raises:
            PhylaError: as `phyla.load`.
        """
        return self.open_engine(choice, self.registry)


def open_engine(choice: ModelChoice, registry: Registry) -> Engine:
    """What `phyla.load` does, with a sign of life on a terminal while weights are read."""
    from phyla.checkpoint import open_checkpoint

    kv_bits = read_bits(choice.kv_bits)
    checkpoint = open_checkpoint(choice.source, revision=choice.revision, offline=choice.offline)
    if choice.needed:
        check_senses(checkpoint, registry.family_for(checkpoint, choice.family), choice.needed)
    # Not before: fetching a checkpoint draws progress bars of its own.
    with working(f"Loading {checkpoint.name}"):
        import phyla

        return phyla.load(
            checkpoint,
            family=choice.family,
            dtype=choice.dtype,
            max_context=choice.max_context,
            kv_bits=kv_bits,
            registry=registry,
        )


def read_bits(text: str | None) -> int | tuple[int, int] | None:
    """Read `8` or `8,4`.

    Raises:
        BadParameter: it is neither, or MLX has no such quantization.
    """
    if text is None:
        return None
    import typer

    match = re.fullmatch(r"(\d+)(?:,(\d+))?", text.replace(" ", ""))
    if match is None:
        raise typer.BadParameter(
            f"{text!r} is neither a number of bits nor two with a comma", param_hint="--kv-bits"
        )
    keys, values = match.groups()
    bits = int(keys) if values is None else (int(keys), int(values))
    try:
        read_kv_quantization(bits)
    except RequestError as error:
        raise typer.BadParameter(str(error), param_hint="--kv-bits") from None
    return bits


@contextmanager
def working(what: str) -> Iterator[None]:
    """Shows on standard error that something goes on, if that is a terminal; Ctrl-C ends it all."""
    if not sys.stderr.isatty():
        with leaving_at_once():
            yield
        return
    from rich.console import Console

    status = Console(stderr=True, markup=False, highlight=False).status(f"{what} ...")
    # Stopped first: while it shows, the terminal's cursor is hidden.
    with leaving_at_once(status.stop), status:
        yield
