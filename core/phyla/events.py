"""What a model says back: the events of a stream, and the reply that it ends with.

Events are frozen dataclasses with a literal `kind`; the reply is pydantic, so it can be sent on.
"""

from __future__ import annotations

from collections.abc import Sequence  # noqa: TC003 (read by documentation tools)
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pydantic import BaseModel, ConfigDict

from phyla.messages import Message, Reasoning, Text, ToolCall

FinishReason = Literal["stop", "length", "tool_calls", "cancelled", "context_full"]


class TokenLogprob(BaseModel):
    """One generated token and how likely it was.

    Attributes:
        token: its id.
        text: how it reads.
        logprob: the natural logarithm of its probability, before every filter.
        top: the likeliest ids and their log probabilities, best first, as many as were asked for.
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


class ToolCallError(BaseModel):
    """Something in a reply that should have been a tool call; nothing of it is lost.

    Attributes:
        raw: the model's own words.
        reason: why they are no call.
        incomplete: the reply ended inside the call, rather than the call being wrong.
    """

    model_config = ConfigDict(frozen=True)

    raw: str
    reason: str
    incomplete: bool = False


class Reply(BaseModel):
    """A finished reply.

    Attributes:
        text: the answer, without reasoning, tool calls, markers, end-of-turn tokens and stop texts.
        reasoning: what the model thought before and between.
        tool_calls: the calls it made, in order.
        tool_call_errors: what should have been calls and cannot be read as such.
        finish_reason: `stop` (the model ended, or a stop text or id came), `tool_calls` (it ended
            and wants tools called), `length` (max_tokens), `context_full`, or `cancelled`.
        usage: token counts.
        timings: seconds.
        seed: the seed in use; the same request with this seed gives the same reply.
        tokens: the generated ids, including a final stop id.
        logprobs: one entry per generated token when asked for, else None.
    """

    model_config = ConfigDict(frozen=True)

    text: str
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_errors: tuple[ToolCallError, ...] = ()
    finish_reason: FinishReason
    usage: Usage
    timings: Timings
    seed: int
    tokens: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] | None = None

    @property
    def message(self) -> Message:
        """The reply as the assistant's message, for the conversation to go on with.

        Reasoning, text and calls are blocks of it, which templates show or leave out. What could
        not be read as a call is not in it.
        """
        return spoken(self.text, self.reasoning, self.tool_calls)


def spoken(text: str, reasoning: str, calls: Sequence[ToolCall]) -> Message:
    """What an assistant said, as its message."""
    if not reasoning and not calls:
        return Message(role="assistant", content=text)
    thought = (Reasoning(text=reasoning),) if reasoning else ()
    said = (Text(text=text),) if text else ()
    return Message(role="assistant", content=(*thought, *said, *calls))


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
class ReasoningDelta:
    """A piece of what the model thinks; the pieces together are `Reply.reasoning`."""

    text: str
    kind: Literal["reasoning"] = "reasoning"


@dataclass(frozen=True)
class ToolCallStarted:
    """The model calls a tool, and which is known. `index` counts the reply's calls from 0."""

    index: int
    id: str
    name: str
    kind: Literal["tool_call_started"] = "tool_call_started"


@dataclass(frozen=True)
class ToolCallDelta:
    """More of a call's arguments, as JSON text; the deltas of a call join to its final JSON."""

    index: int
    arguments: str
    kind: Literal["tool_call_delta"] = "tool_call_delta"


@dataclass(frozen=True)
class ToolCallFinished:
    """A call is complete."""

    index: int
    call: ToolCall
    kind: Literal["tool_call_finished"] = "tool_call_finished"


@dataclass(frozen=True)
class ToolCallFailed:
    """What should be a call cannot be read; `index` is that of a call that had started, if any."""

    index: int | None
    error: ToolCallError
    kind: Literal["tool_call_failed"] = "tool_call_failed"


@dataclass(frozen=True)
class Finished:
    """The last event of every stream that did not fail."""

    reply: Reply
    kind: Literal["finished"] = "finished"


Event: TypeAlias = (
    TextDelta
    | ReasoningDelta
    | ToolCallStarted
    | ToolCallDelta
    | ToolCallFinished
    | ToolCallFailed
    | Finished
)
