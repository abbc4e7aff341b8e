"""The turn of a session that is being made: what it answers, and how far its reply has come."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from phyla.engine.answer import Answer
from phyla.prompt import Prompt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from phyla.engine.answer import Voice
    from phyla.engine.media import MediaItem
    from phyla.engine.resolve import ResolvedOptions
    from phyla.hooks import LogitsProcessor
    from phyla.messages import Message


@dataclass(frozen=True)
class Settled:
    """A request's options with nothing left open, and what changes its logits."""

    options: ResolvedOptions
    processors: Sequence[LogitsProcessor]

    def with_seed(self, seed: int) -> Settled:
        """The same with another seed."""
        return replace(self, options=replace(self.options, seed=seed))

    def alike(self, other: Settled) -> bool:
        """Whether both make one reply, apart from its length."""
        without = replace(self.options, max_tokens=None)
        return without == replace(other.options, max_tokens=None)


@dataclass(frozen=True, eq=False)
class Turn:
    """What was appended last, and the reply to it.

    Attributes:
        prompt: what was appended.
        messages: the conversation, as far as it came by `append_chat`.
        items: its media.
        answer: the reply, once it has begun.
        settled: the options of its latest call.
    """

    prompt: Prompt
    messages: tuple[Message, ...] = ()
    items: tuple[MediaItem, ...] = ()
    answer: Answer | None = None
    settled: Settled | None = None

    @classmethod
    def empty(cls) -> Turn:
        """That of a session which holds nothing."""
        return cls(Prompt(ids=()))

    @property
    def said(self) -> Message | None:
        """The reply as a message; None where nothing was said."""
        return self.answer.message if self.answer is not None and self.answer.tokens else None

    def unanswered(self) -> Turn:
        """The same, before its reply."""
        return replace(self, answer=None, settled=None)

    def then(self, prompt: Prompt) -> Turn:
        """The next one, which is no part of the conversation."""
        return Turn(prompt, self.messages, self.items)

    def answered(self, answer: Answer, settled: Settled) -> Turn:
        """The same, with this reply."""
        return replace(self, answer=answer, settled=settled)

    def with_seed_of_reply(self, settled: Settled) -> Settled:
        """These options with the seed of the reply that they go on with, if there is one."""
        return settled if self.settled is None else settled.with_seed(self.settled.options.seed)

    def voiced(self, settled: Settled, voice: Voice) -> Answer:
        """The reply, ready to go on."""
        answer, before = self.answer, self.settled
        if answer is None or before is None:
            return Answer(voice, self.prompt, settled.options, processors=settled.processors)
        if before.alike(settled) and not answer.stopped:
            return answer
        return answer.continued(settled.options, settled.processors)

    def forked(self) -> Turn:
        """The same with a reply of its own, for both to go on with."""
        if self.answer is None or self.settled is None:
            return self
        answer = self.answer.continued(self.settled.options, self.settled.processors)
        return replace(self, answer=answer)


def after_reply(following: Prompt, last: int, voice: Voice) -> Prompt:
    """What follows a reply, without the end of turn if the model has said it already.

    Args:
        following: what the template writes behind the reply's text.
        last: the token that the reply ended with.
        voice: knows the ends of turns.
    """
    if last not in voice.eos or following.ids[:1] != (last,):
        return following
    return replace(
        following,
        ids=following.ids[1:],
        text=following.text.removeprefix(voice.tokenizer.token_text(last)),
        media=tuple(placed.moved(-1) for placed in following.media),
    )
