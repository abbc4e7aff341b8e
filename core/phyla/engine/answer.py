"""The reply to one request as it grows: sampled tokens in, events out. Knows no model."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING

from phyla.engine.reply_reader import ReplyReader
from phyla.events import (
    Event,
    Finished,
    FinishReason,
    Reply,
    TextDelta,
    Timings,
    TokenLogprob,
    Usage,
    spoken,
)
from phyla.hooks import AnswerOnly
from phyla.messages import Message, Reasoning, ToolCall

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import mlx.core as mx

    from phyla.engine.classifier import SpanEvent
    from phyla.engine.resolve import ResolvedOptions
    from phyla.engine.sampling import Sampled
    from phyla.engine.tokenizer import Tokenizer
    from phyla.family import Dialect
    from phyla.hooks import LogitsProcessor
    from phyla.prompt import Prompt


@dataclass(frozen=True, kw_only=True)
class Voice:
    """What an engine's replies have in common.

    Attributes:
        dialect: how the model marks what it says.
        eos: ids that end a turn.
    """

    tokenizer: Tokenizer
    dialect: Dialect
    eos: frozenset[int]


@dataclass(frozen=True, kw_only=True)
class _Place:
    """How much of each there was when a call began."""

    tokens: int
    text: int
    reasoning: int
    calls: int
    errors: int
    reasoning_tokens: int


class Answer:
    """The reply as it grows: sampled tokens in, events out.

    A session may make it in several calls; each begins with `resume` and is told by itself.

    Args:
        voice: how the model marks what it says, and the ids that end a turn.
        prompt: what is answered.
        options: how.
        processors: change the logits; those for the answer only are kept off the reasoning.
        earlier: ids of the same turn that were told before.
    """

    def __init__(
        self,
        voice: Voice,
        prompt: Prompt,
        options: ResolvedOptions,
        *,
        processors: Sequence[LogitsProcessor] = (),
        earlier: Sequence[int] = (),
    ) -> None:
        self._voice = voice
        self._prompt = prompt
        self._options = options
        self._processors = processors
        self._tokenizer = voice.tokenizer
        self._emit: Callable[[Event], None] = _ignore
        self._stop_ids = frozenset(options.stop_token_ids)
        if not options.ignore_eos:
            self._stop_ids |= voice.eos
        self._unread = 0  # how many of the first ids another answer has read
        self._carried = ""  # what that one withheld
        self._said = spoken("", "", ())  # and what it told
        self._reader = self._new_reader()
        self._reasoning = voice.dialect.reasoning
        self._closing = False
        self._closed_at = 0  # how many tokens there are when reasoning has been closed for it
        self._closing_tokens = 0  # those among them that still lie inside reasoning
        self._tokens: list[int] = list(earlier)
        self._answer_from = 0  # how many tokens there were when the answer last began
        self._logprobs: list[TokenLogprob] = []
        self._told = 0
        self._first_token_at: float | None = None
        self._replay(self._reader)
        self.resume(_ignore)

    def continued(self, options: ResolvedOptions, processors: Sequence[LogitsProcessor]) -> Answer:
        """The same turn's reply, to go on with other options, or after a stop text."""
        other = Answer(
            self._voice, self._prompt, options, processors=processors, earlier=self._tokens
        )
        stopped = self._reader.classifier.stopped
        if stopped or options.stop != self._options.stop:
            # What was told stays told, whatever the new stop texts; reading begins anew behind it.
            other._prompt = replace(
                self._prompt, opens_reasoning=self._reader.classifier.reasoning_open, seed=""
            )
            other._unread = len(self._tokens)
            other._carried = "" if stopped else self._withheld()
            other._said = self.message
            other._reader = other._new_reader()
            other.resume(_ignore)
        other._closing, other._closed_at = self._closing, self._closed_at
        other._closing_tokens = self._closing_tokens
        other._answer_from = self._answer_from
        return other

    def _new_reader(self) -> ReplyReader:
        prompt = self._prompt
        return ReplyReader(
            self._voice.tokenizer,
            self._voice.dialect,
            tools=prompt.tools,
            stops=self._options.stop,
            in_reasoning=prompt.opens_reasoning,
            call_ids=_call_ids(prompt, self._options.seed),
            seed=prompt.seed,
        )

    def _replay(self, reader: ReplyReader) -> None:
        for token in self._tokens[self._unread :]:
            if token not in self._stop_ids:
                reader.add(token)

    def _withheld(self) -> str:
        """The text that the reader would tell if the reply ended here."""
        reader = self._new_reader()
        self._replay(reader)
        told = len(reader.classifier.text)
        reader.finish()
        return reader.classifier.text[told:]

    @property
    def stopped(self) -> bool:
        """Whether a stop text has come; then `continued` goes on."""
        return self._reader.classifier.stopped

    @property
    def tokens(self) -> Sequence[int]:
        """The ids so far, of all calls."""
        return self._tokens

    @property
    def message(self) -> Message:
        """What was said so far, in all calls, as the assistant's message."""
        classifier, before = self._reader.classifier, self._said
        return spoken(
            before.text + self._carried + classifier.text,
            "".join(b.text for b in before.blocks if isinstance(b, Reasoning))
            + classifier.reasoning,
            [*(b for b in before.blocks if isinstance(b, ToolCall)), *classifier.calls],
        )

    def resume(self, emit: Callable[[Event], None]) -> None:
        """Begin a call: what comes from here on is its own, and its events go to `emit`."""
        self._emit = emit
        self._logprobs, self._told, self._first_token_at = [], 0, None
        self._from = self._place()

    def _place(self) -> _Place:
        classifier = self._reader.classifier
        return _Place(
            tokens=len(self._tokens),
            text=len(classifier.text),
            reasoning=len(classifier.reasoning),
            calls=len(classifier.calls),
            errors=len(classifier.errors),
            reasoning_tokens=self._reader.reasoning_tokens - self._closing_tokens,
        )

    @property
    def processors(self) -> list[LogitsProcessor]:
        """The request's processors; those for the answer only skip the reasoning."""
        return [
            self._outside_reasoning(process) if isinstance(process, AnswerOnly) else process
            for process in self._processors
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
            if self._carried and len(self._tokens) == self._unread:
                self._hand_out([TextDelta(self._carried)])
        self._tokens.append(token)
        if self._options.logprobs:
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
        budget = self._options.reasoning_budget
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

    def finish(
        self,
        reason: FinishReason,
        *,
        submitted: float,
        started: float,
        prompt_tokens: int,
        cached_tokens: int = 0,
        pinned_tokens: int = 0,
        goes_on: bool = False,
    ) -> Reply:
        """Make the reply of this call, and hand it out.

        Args:
            reason: why no token follows, as far as is known outside the text.
            submitted: when the request came, by `time.perf_counter`.
            started: when work on it began.
            prompt_tokens: for `Usage`, like the two that follow.
            cached_tokens: those that were not computed again.
            pinned_tokens: those that are kept for later.
            goes_on: whether another call may go on with the text; then what may still become a
                marker or a character stays withheld.
        """
        if not goes_on:
            self._hand_out(self._reader.finish())
        if self._told < len(self._logprobs):
            self._hand_out([TextDelta("")])
        ended = time.perf_counter()
        first_token_at = self._first_token_at or ended
        classifier, begun = self._reader.classifier, self._from
        here = self._place()
        carried = self._carried if begun.tokens == self._unread else ""
        reply = Reply(
            text=carried + classifier.text[begun.text :],
            reasoning=classifier.reasoning[begun.reasoning :],
            tool_calls=tuple(classifier.calls[begun.calls :]),
            tool_call_errors=tuple(classifier.errors[begun.errors :]),
            finish_reason=classifier.finish_reason(reason),
            usage=Usage(
                prompt_tokens=prompt_tokens,
                cached_tokens=cached_tokens,
                pinned_tokens=pinned_tokens,
                completion_tokens=here.tokens - begun.tokens,
                reasoning_tokens=here.reasoning_tokens - begun.reasoning_tokens,
            ),
            timings=Timings(
                queue=started - submitted,
                prefill=first_token_at - started,
                decode=ended - first_token_at,
            ),
            seed=self._options.seed,
            tokens=tuple(self._tokens[begun.tokens :]),
            logprobs=tuple(self._logprobs) if self._options.logprobs else None,
        )
        self._emit(Finished(reply))
        return reply

    def _hand_out(self, events: Sequence[SpanEvent]) -> None:
        for event in events:
            if isinstance(event, TextDelta) and self._told < len(self._logprobs):
                event = replace(event, logprobs=tuple(self._logprobs[self._told :]))
                self._told = len(self._logprobs)
            self._emit(event)


def _ignore(event: Event) -> None:
    """Where events go before anybody listens."""


def _call_ids(prompt: Prompt, seed: int) -> str:
    """What the ids of a reply's calls begin with: unlike in another turn, like in a repetition."""
    digest = blake2b(repr((prompt.ids, seed)).encode(), digest_size=6)
    return f"call_{digest.hexdigest()}"


def _logprob(tokenizer: Tokenizer, sampled: Sampled, token: int) -> TokenLogprob:
    logprob, top = sampled.read_logprobs()
    return TokenLogprob(token=token, text=tokenizer.token_text(token), logprob=logprob, top=top)
