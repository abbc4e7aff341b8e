"""What a model says back: the events of a stream, and the reply that it ends with.

Events are frozen dataclasses with a literal `kind`; the reply is pydantic, so it can be sent on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from pydantic import BaseModel, ConfigDict

FinishReason = Literal["stop", "length", "tool_calls", "cancelled", "context_full"]


class TokenLogprob(BaseModel):
    """One generated token, its log probability (natural log, before every filter), and the
    likeliest alternatives, best first, as many as were asked for.
    """

    model_config = ConfigDict(frozen=True)

    token: int
    text: str
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


class Usage(BaseModel):
    """Token counts of one request."""

    model_config = ConfigDict(frozen=True)

    prompt_tokens: int = 0
    cached_tokens: int = 0
    pinned_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0


class Timings(BaseModel):
    """Seconds that a request spent waiting, reading its prompt, and generating."""

    model_config = ConfigDict(frozen=True)

    queue: float = 0.0
    prefill: float = 0.0
    decode: float = 0.0


class Reply(BaseModel):
    """A finished reply.

    Attributes:
        text: the answer, without end-of-turn tokens and stop texts.
        finish_reason: `stop` (the model ended, or a stop text or id came), `length` (max_tokens),
            `context_full`, or `cancelled`.
        usage: token counts.
        timings: seconds.
        seed: the seed in use; the same request with this seed gives the same reply.
        tokens: the generated ids, including a final stop id.
        logprobs: one entry per generated token when asked for, else None.
    """

    model_config = ConfigDict(frozen=True)

    text: str
    finish_reason: FinishReason
    usage: Usage
    timings: Timings
    seed: int
    tokens: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] | None = None


@dataclass(frozen=True)
class TextDelta:
    """A piece of the answer; the pieces together are `Reply.text`.

    `logprobs` holds the entries of the tokens generated since the piece before; when they were not
    asked for it is empty.
    """

    text: str
    logprobs: tuple[TokenLogprob, ...] = ()
    kind: Literal["text"] = "text"


@dataclass(frozen=True)
class Finished:
    """The last event of every stream that did not fail."""

    reply: Reply
    kind: Literal["finished"] = "finished"


Event: TypeAlias = TextDelta | Finished
