"""One request, from its token ids to its reply: runs on the engine's thread.

Ties the decode loop to the reader of the reply; knows no template and no family.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING

from phyla.engine.decode import Cursor, Decoding
from phyla.engine.reply_reader import ReplyReader
from phyla.engine.sampling import Sampler
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
from phyla.hooks import AnswerOnly

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import mlx.core as mx

    from phyla.engine.classifier import SpanEvent
    from phyla.engine.resolve import ResolvedOptions
    from phyla.engine.sampling import Sampled
    from phyla.engine.tokenizer import Tokenizer
    from phyla.family import Dialect, Model
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
        dialect: how the model marks what it says.
        eos: ids that end a turn.
        chunk: how many prompt tokens are fed at once.
        run_ahead: whether the next step starts before the current token is read.
    """

    model: Model
    tokenizer: Tokenizer
    dtype: mx.Dtype
    context: int
    vocab_size: int
    dialect: Dialect
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
    answer = _Answer(runtime, request, emit)
    reason: FinishReason = "length" if limit == options.max_tokens else "context_full"
    try:
        logits = cursor.prefill(prompt.ids, chunk=runtime.chunk, cancelled=cancelled)
    except CancelledError:
        reason = "cancelled"
    else:
        sampler = Sampler(
            options,
            runtime.vocab_size,
            prompt.ids,
            answer.processors,
            limit=runtime.tokenizer.vocab_size,
        )
        decoding = Decoding(cursor, logits, sampler, limit=limit, run_ahead=runtime.run_ahead)
        decoding.force(answer.close_reasoning())
        for sampled in decoding:
            if answer.add(sampled):
                reason = "stop"
                break
            if cancelled():
                reason = "cancelled"
                break
            decoding.force(answer.close_reasoning())
    reply = answer.finish(reason, started=started)
    emit(Finished(reply))
    return reply


class _Answer:
    """The reply as it grows: sampled tokens in, events out."""

    def __init__(self, runtime: Runtime, request: Request, emit: Callable[[Event], None]) -> None:
        options, prompt = request.options, request.prompt
        self._request = request
        self._tokenizer = runtime.tokenizer
        self._emit = emit
        self._stop_ids = frozenset(options.stop_token_ids)
        if not options.ignore_eos:
            self._stop_ids |= runtime.eos
        self._reader = ReplyReader(
            runtime.tokenizer,
            runtime.dialect,
            tools=prompt.tools,
            stops=options.stop,
            in_reasoning=prompt.opens_reasoning,
            call_ids=_call_ids(prompt, options.seed),
            seed=prompt.seed,
        )
        self._reasoning = runtime.dialect.reasoning
        self._closing = False
        self._closed_at = 0  # how many tokens there are when reasoning has been closed for it
        self._closing_tokens = 0  # those among them that still lie inside reasoning
        self._tokens: list[int] = []
        self._answer_from = 0  # how many tokens there were when the answer last began
        self._logprobs: list[TokenLogprob] = []
        self._told = 0
        self._first_token_at: float | None = None

    @property
    def processors(self) -> list[LogitsProcessor]:
        """The request's processors; those for the answer only skip the reasoning."""
        return [
            self._outside_reasoning(process) if isinstance(process, AnswerOnly) else process
            for process in self._request.processors
        ]

    def _outside_reasoning(self, process: LogitsProcessor) -> LogitsProcessor:
        def guarded(tokens: Sequence[int], logits: mx.array) -> mx.array:
            if self._reader.classifier.reasoning_open or len(tokens) < self._closed_at:
                return logits
            return process(tokens[self._answer_from :], logits)

        return guarded

    def add(self, sampled: Sampled) -> bool:
        """Take the next token; return whether it ends the reply."""
        token = sampled.token_id()
        if self._first_token_at is None:
            self._first_token_at = time.perf_counter()
        self._tokens.append(token)
        if self._request.options.logprobs:
            self._logprobs.append(_logprob(self._tokenizer, sampled, token))
        if token in self._stop_ids:
            return True
        reader = self._reader
        was_open, thought = reader.classifier.reasoning_open, reader.reasoning_tokens
        self._hand_out(reader.add(token))
        if len(self._tokens) <= self._closed_at:
            self._closing_tokens += reader.reasoning_tokens - thought
        if was_open and not reader.classifier.reasoning_open:
            self._answer_from = max(len(self._tokens), self._closed_at)
        return reader.classifier.stopped

    def close_reasoning(self) -> Sequence[int]:
        """The tokens that have to come next because the reasoning budget is spent, if it is."""
        budget = self._request.options.reasoning_budget
        if budget is None or self._reasoning is None:
            return ()
        if not self._reader.classifier.reasoning_open:
            self._closing = False
            return ()
        if self._closing or self._reader.reasoning_tokens < budget:
            return ()
        self._closing = True
        ending = self._tokenizer.encode(self._reasoning.ending, add_special_tokens=False)
        self._closed_at = len(self._tokens) + len(ending)
        return ending

    def finish(self, reason: FinishReason, *, started: float) -> Reply:
        """No token follows: hand out what was withheld, and make the reply."""
        self._hand_out(self._reader.finish())
        if self._told < len(self._logprobs):
            self._hand_out([TextDelta("")])
        ended = time.perf_counter()
        first_token_at = self._first_token_at or ended
        request, classifier = self._request, self._reader.classifier
        return Reply(
            text=classifier.text,
            reasoning=classifier.reasoning,
            tool_calls=tuple(classifier.calls),
            tool_call_errors=tuple(classifier.errors),
            finish_reason=classifier.finish_reason(reason),
            usage=Usage(
                prompt_tokens=len(request.prompt.ids),
                completion_tokens=len(self._tokens),
                reasoning_tokens=self._reader.reasoning_tokens - self._closing_tokens,
            ),
            timings=Timings(
                queue=started - request.submitted,
                prefill=first_token_at - started,
                decode=ended - first_token_at,
            ),
            seed=request.options.seed,
            tokens=tuple(self._tokens),
            logprobs=tuple(self._logprobs) if request.options.logprobs else None,
        )

    def _hand_out(self, events: Sequence[SpanEvent]) -> None:
        for event in events:
            if isinstance(event, TextDelta) and self._told < len(self._logprobs):
                event = replace(event, logprobs=tuple(self._logprobs[self._told :]))
                self._told = len(self._logprobs)
            self._emit(event)


def _call_ids(prompt: Prompt, seed: int) -> str:
    """What the ids of a reply's calls begin with: unlike in another turn, like in a repetition."""
    digest = blake2b(repr((prompt.ids, seed)).encode(), digest_size=6)
    return f"call_{digest.hexdigest()}"


def _logprob(tokenizer: Tokenizer, sampled: Sampled, token: int) -> TokenLogprob:
    logprob, top = sampled.read_logprobs()
    return TokenLogprob(token=token, text=tokenizer.token_text(token), logprob=logprob, top=top)
