"""Turns token ids into token ids. Knows nothing of text, chat templates or families."""

from __future__ import annotations

from collections import deque
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import mlx.core as mx

from phyla.engine.features import NO_MEDIA
from phyla.engine.rows import stack
from phyla.errors import CancelledError
from phyla.family import Step

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from phyla.engine.features import ChunkMedia, Positions
    from phyla.engine.layers import Layers
    from phyla.engine.sampling import Sampled, Sampler
    from phyla.family import Model, Tap


class Cursor:
    """One sequence in a model: what its layers remember, and how it is fed.

    Args:
        model: the forward pass.
        layers: the stores, empty or filled.
        dtype: the activations' type.
        extent: how many tokens the sequence may reach; fixed for its life.
        reserve: how many tokens to make room for at once.
        positions: where the tokens stand, if not one behind the other.
    """

    def __init__(
        self,
        model: Model,
        layers: Layers,
        *,
        dtype: mx.Dtype,
        extent: int,
        reserve: int = 0,
        positions: Positions | None = None,
    ) -> None:
        self.layers = layers
        self.model = model
        self.dtype = dtype
        self.extent = extent
        self.positions = positions
        layers.reserve(min(reserve, extent))

    @property
    def length(self) -> int:
        """How many tokens the sequence holds."""
        return self.layers.length

    @property
    def position(self) -> int:
        """Where the next token stands, which is behind the prompt."""
        return self.length + (0 if self.positions is None else self.positions.delta)

    def feed(
        self,
        ids: Sequence[int],
        *,
        last: bool,
        embeddings: mx.array | None = None,
        media: ChunkMedia = NO_MEDIA,
    ) -> mx.array | None:
        """Feed one chunk of a prompt; with `last`, return the logits `[V]` after it.

        Args:
            ids: the tokens.
            last: whether logits are wanted. If not, only the stores are evaluated, so that what
                follows the last layer's keys and values is never computed.
            embeddings: `[T, D]`, what the tokens mean instead of what the model's table says.
            media: the features that take the place of embeddings, and where.
        """
        hidden = self._forward(mx.array([list(ids)], dtype=mx.int32), embeddings, media)
        if last:
            return _last_logits(self.model, hidden)[0]
        mx.eval(self.layers.arrays)
        return None

    def prefill(
        self, ids: Sequence[int], *, chunk: int, cancelled: Callable[[], bool] = lambda: False
    ) -> mx.array:
        """Feed a prompt in chunks; return the logits `[V]` after its last token, in float32.

        Raises:
            CancelledError: `cancelled()` turned true between two chunks; what was fed stays.
        """
        for start in range(0, len(ids), chunk):
            if cancelled():
                raise CancelledError(f"Cancelled after {start} of {len(ids)} prompt tokens.")
            logits = self.feed(ids[start : start + chunk], last=start + chunk >= len(ids))
            if logits is not None:
                return logits
        raise AssertionError("a prompt holds at least one token")

    def advance(self, token: mx.array) -> mx.array:
        """Feed one token, a scalar that need not be computed yet; return the logits `[V]` after."""
        return advance([self], [token])[0]

    def trace(self, ids: Sequence[int], tap: Tap, media: ChunkMedia = NO_MEDIA) -> mx.array:
        """Feed all of `ids` at once; return the logits `[T, V]` of every position."""
        hidden = self._forward(mx.array([list(ids)], dtype=mx.int32), media=media, tap=tap)
        return self.model.logits(hidden)[0].astype(mx.float32)

    def _forward(
        self,
        ids: mx.array,
        embeddings: mx.array | None = None,
        media: ChunkMedia = NO_MEDIA,
        tap: Tap | None = None,
    ) -> mx.array:
        positions, axes = self._places(ids.shape[1])
        step = Step(ids=ids, positions=positions, extents=(self.extent,), axes=axes)
        if tap is not None:
            step = replace(step, tap=tap)
        self.layers.begin(media.blocks)
        # An embedding kept in the file's own type would otherwise set the type of all that follows.
        given = self.model.embed(step) if embeddings is None else embeddings[None]
        given = given.astype(self.dtype)
        if media.places:
            step = replace(step, deep=media.deep(given))
            given = media.splice(given)
        return self.model(given, step, self.layers.stores)

    def _places(self, count: int) -> tuple[mx.array, mx.array | None]:
        """`[1, T]`, where the next tokens stand, and `[axes, 1, T]` where the axes differ."""
        if self.positions is None:
            return mx.arange(self.length, self.length + count, dtype=mx.int32)[None], None
        axes = self.positions.of(self.length, count)
        apart = bool((axes != axes[0]).any())
        return mx.array(axes[:1]), mx.array(axes[:, None]) if apart else None


def advance(cursors: Sequence[Cursor], tokens: Sequence[mx.array]) -> list[mx.array]:
    """Feed one token to each of several sequences of one model, in one pass.

    The tokens are scalars that need not be computed yet. Returns the logits `[V]` after each.
    """
    model, dtype = cursors[0].model, cursors[0].dtype
    for cursor in cursors:
        cursor.layers.begin(())
    step = Step(
        ids=mx.stack([token.astype(mx.int32) for token in tokens])[:, None],
        positions=mx.array([[cursor.position] for cursor in cursors], dtype=mx.int32),
        extents=tuple(cursor.extent for cursor in cursors),
    )
    layers = [cursor.layers for cursor in cursors]
    # One sequence alone needs no rows, nor what taking them apart costs.
    stores = layers[0].stores if len(layers) == 1 else stack(layers)
    hidden = model(model.embed(step).astype(dtype), step, stores)
    return _last_logits(model, hidden)


def feed(
    cursors: Sequence[Cursor], pieces: Sequence[Sequence[int]], *, last: Sequence[bool]
) -> list[mx.array | None]:
    """Feed a chunk to each of several sequences of one model, in one pass; see `Cursor.feed`.

    The chunks are equally long and hold no media, nor do the sequences. Returns the logits `[V]`
    after those that are the last.
    """
    if len(cursors) == 1:
        return [cursors[0].feed(pieces[0], last=last[0])]
    model, count = cursors[0].model, len(pieces[0])
    for cursor in cursors:
        cursor.layers.begin(())
    starts = mx.array([[cursor.position] for cursor in cursors], dtype=mx.int32)
    step = Step(
        ids=mx.array([list(piece) for piece in pieces], dtype=mx.int32),
        positions=starts + mx.arange(count, dtype=mx.int32),
        extents=tuple(cursor.extent for cursor in cursors),
    )
    embedded = model.embed(step).astype(cursors[0].dtype)
    hidden = model(embedded, step, stack([cursor.layers for cursor in cursors]))
    mx.eval([array for cursor in cursors for array in cursor.layers.arrays])
    wanted = [row for row, ends in enumerate(last) if ends]
    logits: list[mx.array | None] = [None] * len(cursors)
    if wanted:
        rows = hidden if len(wanted) == len(cursors) else hidden[mx.array(wanted)]
        for row, each in zip(wanted, _last_logits(model, rows), strict=True):
            logits[row] = each
    return logits


def _last_logits(model: Model, hidden: mx.array) -> list[mx.array]:
    """The logits `[V]` of each row's last position, in float32."""
    return list(model.logits(hidden[:, -1]).astype(mx.float32))


class _Mark(NamedTuple):
    """Where a line stands before a step is built that may not be wanted."""

    layers: Layers
    sampler: Sampler
    logits: mx.array


class Line:
    """The tokens of one reply, drawn one after another, at most `limit`.

    Args:
        cursor: the sequence that goes on.
        sampler: draws.
        limit: how many tokens to draw.
        logits: `[V]`, what the first token is drawn from.

    Attributes:
        cursor: the sequence.
        limit: how many tokens to draw.
        count: how many were taken.
        pending: the token that is drawn and not yet taken.
        error: what went wrong when a token was to be drawn; the line has ended then.
    """

    def __init__(self, cursor: Cursor, logits: mx.array, sampler: Sampler, *, limit: int) -> None:
        self.cursor = cursor
        self.limit = limit
        self.count = 0
        self.error: Exception | None = None
        self._sampler = sampler
        self._forced: deque[int] = deque()
        self._forced_now: int | None = None  # the pending token, where it was forced
        self._logits = logits
        # The sampler from before the pending token was drawn, in case another is to take its place.
        self._before = sampler
        self.pending: Sampled
        try:
            self.draw(logits)
        except Exception as error:  # noqa: BLE001 (a plugin's)
            self.error = error
        else:
            mx.async_eval(*self.pending.arrays)

    @property
    def waits(self) -> bool:
        """Whether the next token can only be drawn once the current one is known."""
        return self._sampler.waits

    @property
    def last(self) -> bool:
        """Whether the pending token is the last."""
        return self.count + 1 >= self.limit

    @property
    def logits(self) -> mx.array:
        """`[V]`, the logits after all that was fed."""
        return self._logits

    def force(self, ids: Sequence[int]) -> None:
        """Make these the next tokens, whatever the model would say."""
        self._forced.extend(ids)

    def draw(self, logits: mx.array) -> None:
        """Draw the next token; it becomes the pending one."""
        self._logits, self._before, self._forced_now = logits, copy(self._sampler), None
        self.pending = self._sampler.sample(logits)

    def put_forced(self) -> bool:
        """If a token is forced, let it take the pending one's place."""
        if not self._forced or self.error is not None:
            return False
        self._sampler = copy(self._before)
        self._forced_now = self._forced.popleft()
        self.pending = self._sampler.sample(self._logits, forced=self._forced_now)
        return True

    def paused(self) -> Paused:
        """What it takes to go on later; holds none of the cursor's memory."""
        now = () if self._forced_now is None else (self._forced_now,)
        return Paused(self._before, (*now, *self._forced), bool(now), self.count, self.limit)

    def mark(self) -> _Mark:
        """Where the line stands; drop it before what follows is computed."""
        return _Mark(self.cursor.layers.mark(), copy(self._sampler), self._logits)

    def reset(self, mark: _Mark) -> None:
        """Return to a mark: what was fed and drawn since never was."""
        self.cursor.layers.reset(mark.layers)
        self._sampler, self._logits = mark.sampler, mark.logits


@dataclass(frozen=True)
class Paused:
    """A line without its cursor.

    Attributes:
        sampler: as it was before the pending token was drawn, which is drawn again.
        forced: tokens that have to come next.
        at_once: whether the first of them takes the pending token's place.
    """

    sampler: Sampler
    forced: tuple[int, ...]
    at_once: bool
    count: int
    limit: int

    def resumed(self, cursor: Cursor, logits: mx.array) -> Line:
        """The line on a cursor that was fed the same; `logits` `[V]` are those after it."""
        line = Line(cursor, logits, self.sampler, limit=self.limit)
        line.count = self.count
        line.force(self.forced)
        if self.at_once:
            line.put_forced()
        return line


def step(
    lines: Sequence[Line], take: Callable[[Line, Sampled], bool], *, run_ahead: bool
) -> list[Line]:
    """Read one token of every line and start the next of those that go on, which are returned.

    `take` gets a line's token and says whether the line goes on. The graph of the next step is built
    while the current one runs. Of several lines, and with `run_ahead` also of one, it is started before
    anybody sees the current tokens. That keeps a GPU busy, and a CPU too where many operations are
    built; it costs one step after a line's last token. On a CPU, starting a step takes nearly as long
    as the step, so tokens are seen that much later: the next step of one line alone is started there
    when it is known to be wanted, and what was built for nothing is taken back. Lines that draw with
    open eyes (`waits`) get no next step before their current token is known; one whose drawing fails is
    left out, with its `error`.
    """
    tokens = [line.pending for line in lines]
    upcoming = [line for line in lines if not line.last]
    ahead = bool(upcoming) and not any(line.waits for line in upcoming)
    run_ahead = run_ahead or len(upcoming) > 1
    mark: _Mark | None = None
    if ahead:
        if not run_ahead:
            mark = upcoming[0].mark()
        _advance(upcoming)
        if run_ahead:
            mx.async_eval(*(array for line in upcoming for array in line.pending.arrays))
    going: list[Line] = []
    for line, token in zip(lines, tokens, strict=True):
        last = line.last
        line.count += 1
        if take(line, token) and not last:
            going.append(line)
        elif mark is not None and line is upcoming[0]:
            line.reset(mark)
    mark = None
    if not going:
        return going
    if not ahead:
        _advance(going)
        going = [line for line in going if line.error is None]
    for line in going:
        line.put_forced()
    if going and not (ahead and run_ahead):
        mx.async_eval(*(array for line in going for array in line.pending.arrays))
    return going


def _advance(lines: Sequence[Line]) -> None:
    logits = advance([line.cursor for line in lines], [line.pending.token for line in lines])
    for line, row in zip(lines, logits, strict=True):
        try:
            line.draw(row)
        except Exception as error:  # noqa: BLE001 (a plugin's; its neighbours go on)
            line.error = error
