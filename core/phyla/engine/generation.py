"""One request, from its token ids to its reply: runs on the engine's thread.

Ties the decode loop to the detokenizer and the stop texts; knows no template and no family.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from phyla.engine.decode import Cursor, decode
from phyla.engine.detokenize import Detokenizer
from phyla.engine.sampling import Sampler
from phyla.engine.stops import StopMatcher
from phyla.errors import CancelledError
from phyla.events import (
    Event,
    Finished,
    FinishReason,
    Reply,
    TextDelta,
    Timings,
    TokenLogprob,
    Usage,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import mlx.core as mx

    from phyla.engine.resolve import ResolvedOptions
    from phyla.engine.sampling import Sampled
    from phyla.engine.tokenizer import Tokenizer
    from phyla.family import Model
    from phyla.hooks import LogitsProcessor
    from phyla.prompt import Prompt

# Room that is made at once for a reply; a longer one grows the stores on the way.
_RESERVED_REPLY = 1024


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """What every request of an engine shares.

    Attributes:
        context: how many tokens a sequence may hold.
        vocab_size: rows of the head.
        eos: ids that end a turn.
        chunk: how many prompt tokens are fed at once.
        run_ahead: whether the next step starts before the current token is read.
    """

    model: Model
    tokenizer: Tokenizer
    dtype: mx.Dtype
    context: int
    vocab_size: int
    eos: frozenset[int]
    chunk: int
    run_ahead: bool


@dataclass(frozen=True, kw_only=True)
class Request:
    """A checked request: it fits the context, and its options are resolved."""

    prompt: Prompt
    options: ResolvedOptions
    processors: Sequence[LogitsProcessor]
    submitted: float


class _Text:
    """The text side of a reply: ids in, released text out, until a stop text."""

    def __init__(self, tokenizer: Tokenizer, stops: Sequence[str]) -> None:
        self._detokenizer = Detokenizer(tokenizer)
        self._stops = StopMatcher(stops)
        self.released: list[str] = []
        self.stopped = False

    def add(self, token: int) -> str:
        return self._release(self._detokenizer.add(token))

    def finish(self) -> str:
        if self.stopped:
            return ""
        tail = self._release(self._detokenizer.finish())
        if self.stopped:
            return tail
        held = self._stops.flush()
        self.stopped = self._stops.stop is not None
        self.released.append(held)
        return tail + held

    def _release(self, text: str) -> str:
        free, self.stopped = self._stops.feed(text)
        self.released.append(free)
        return free


def run(
    runtime: Runtime,
    request: Request,
    emit: Callable[[Event], None],
    cancelled: Callable[[], bool],
) -> Reply:
    """Run a request to its end, handing out events on the way; the last is `Finished`."""
    started = time.perf_counter()
    prompt, options = request.prompt, request.options
    room = runtime.context - len(prompt.ids)
    limit = room if options.max_tokens is None else min(options.max_tokens, room)
    cursor = Cursor(
        runtime.model,
        dtype=runtime.dtype,
        extent=len(prompt.ids) + limit,
        reserve=len(prompt.ids) + min(limit, _RESERVED_REPLY),
    )
    sampler = Sampler(
        options,
        runtime.vocab_size,
        prompt.ids,
        request.processors,
        limit=runtime.tokenizer.vocab_size,
    )
    stop_ids = frozenset(options.stop_token_ids)
    if not options.ignore_eos:
        stop_ids |= runtime.eos

    text = _Text(runtime.tokenizer, options.stop)
    tokens: list[int] = []
    logprobs: list[TokenLogprob] = []
    told = 0
    first_token_at: float | None = None
    reason: FinishReason = "length" if limit == options.max_tokens else "context_full"

    steps: Iterable[Sampled] = ()
    try:
        logits = cursor.prefill(prompt.ids, chunk=runtime.chunk, cancelled=cancelled)
        steps = decode(cursor, logits, sampler, limit=limit, run_ahead=runtime.run_ahead)
    except CancelledError:
        reason = "cancelled"
    for sampled in steps:
        token = sampled.token_id()
        first_token_at = first_token_at or time.perf_counter()
        tokens.append(token)
        if options.logprobs:
            logprobs.append(_logprob(runtime.tokenizer, sampled, token))
        if token in stop_ids:
            reason = "stop"
            break
        free = text.add(token)
        if free:
            emit(TextDelta(free, logprobs=tuple(logprobs[told:])))
            told = len(logprobs)
        if text.stopped:
            reason = "stop"
            break
        if cancelled():
            reason = "cancelled"
            break

    tail = text.finish()
    if tail or told < len(logprobs):
        emit(TextDelta(tail, logprobs=tuple(logprobs[told:])))
    if text.stopped:
        reason = "stop"
    ended = time.perf_counter()
    first_token_at = first_token_at or ended
    reply = Reply(
        text="".join(text.released),
        finish_reason=reason,
        usage=Usage(prompt_tokens=len(prompt.ids), completion_tokens=len(tokens)),
        timings=Timings(
            queue=started - request.submitted,
            prefill=first_token_at - started,
            decode=ended - first_token_at,
        ),
        seed=options.seed,
        tokens=tuple(tokens),
        logprobs=tuple(logprobs) if options.logprobs else None,
    )
    emit(Finished(reply))
    return reply


def _logprob(tokenizer: Tokenizer, sampled: Sampled, token: int) -> TokenLogprob:
    logprob, top = sampled.read_logprobs()
    return TokenLogprob(token=token, text=tokenizer.token_text(token), logprob=logprob, top=top)
