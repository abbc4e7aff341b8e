"""From a conversation to a prompt: the checkpoint's template, its tokenizer, its dialect."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from phyla.caching import Breakpoint
from phyla.engine.boundaries import PROBES, Boundaries
from phyla.engine.history import told
from phyla.engine.radix import common_length
from phyla.engine.template import ChatTemplate
from phyla.engine.tool_choice import call_opening
from phyla.errors import RequestError, TemplateError
from phyla.messages import Message, read_messages, read_tools
from phyla.prompt import PinnedPrefix, Prompt
from phyla.validation import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from phyla.engine.loading import Blueprint
    from phyla.engine.media import MediaDesk
    from phyla.family import ThinkingLike
    from phyla.messages import Medium, MessagesLike, ToolLike


# A reply that no template changes.
_REPLY = "7c1e4a-reply"


class Encoder:
    """Makes prompts for one checkpoint.

    Args:
        blueprint: what is known of the checkpoint.
        clock: what templates that print the date call.
        media: opens media and puts them in their places.
        bounded: whether to look for all places where a later prompt may part from this one, which
            is of use only to a model that cannot be cut anywhere.
    """

    def __init__(
        self,
        blueprint: Blueprint,
        clock: Callable[[], datetime],
        *,
        media: MediaDesk,
        bounded: bool,
    ) -> None:
        self.media = media
        self._dialect = blueprint.dialect
        self._tokenizer = blueprint.tokenizer
        self._bounded = bounded
        self._template = ChatTemplate(
            blueprint.checkpoint.chat_templates, blueprint.tokenizer.special_tokens, clock
        )

    def encode(
        self,
        messages: MessagesLike,
        *,
        tools: Sequence[ToolLike] | None = None,
        tool_choice: str = "auto",
        thinking: ThinkingLike = None,
        breakpoints: Sequence[Breakpoint] = (),
    ) -> Prompt:
        """As `Engine.encode` has it."""
        dialect = self._dialect
        offered = read_tools(tools)
        listed = isinstance(breakpoints, list | tuple)
        if not listed or not all(isinstance(place, Breakpoint) for place in breakpoints):
            raise RequestError(
                f"breakpoints should be a list of phyla.Breakpoint; found {shown(breakpoints)}.",
                field="breakpoints",
                expected="a list of phyla.Breakpoint",
                found=breakpoints,
            )
        if tool_choice == "none":
            offered = ()
        opening = call_opening(dialect, offered, tool_choice)
        setting = dialect.thinking_setting(thinking)
        conversation = told(read_messages(messages), dialect, instruction=setting.instruction)
        items = self.media.open(conversation)

        def render(part: Sequence[Message], *, opens_reply: bool = False) -> str:
            return self._template.render(
                part, offered, add_generation_prompt=opens_reply, variables=setting.variables
            )

        text = render(conversation, opens_reply=True)
        opens_reasoning = dialect.opens_reasoning(text)
        if opening and opens_reasoning and dialect.reasoning is not None:
            # A reply that must be a call has no time to think.
            text += dialect.reasoning.ending
            opens_reasoning = False
        text += opening
        whole = self.media.expand(text, items)

        def ids(part: str) -> Sequence[int]:
            return self.media.expand(part, items, partly=True).ids

        boundaries = Boundaries(render, ids, conversation, text, whole.ids)
        usual = {boundaries.before_reply()}
        if self._bounded:
            usual.add(boundaries.after_system())
        return Prompt(
            ids=whole.ids,
            media=whole.media,
            text=text,
            opens_reasoning=opens_reasoning,
            tools=offered or None,
            seed=opening,
            boundaries=tuple(sorted(usual - {0})),
            pins=tuple(
                PinnedPrefix(length, place.ttl)
                for place in breakpoints
                if (length := boundaries.at(place))
            ),
        )

    def encode_text(self, text: str, media: Sequence[Medium] = ()) -> Prompt:
        """As `Engine.encode_text` has it."""
        items = self.media.open_blocks(media)
        whole = self.media.expand(text, items, add_special_tokens=True)
        return Prompt(ids=whole.ids, text=text, media=whole.media)

    def again(self, prompt: Prompt, text: str) -> Prompt:
        """A prompt with another text that shows the same media."""
        whole = self.media.expand(text, [placed.item for placed in prompt.media])
        return replace(prompt, text=text, ids=whole.ids, media=whole.media)

    def beginning(
        self,
        messages: MessagesLike,
        *,
        tools: Sequence[ToolLike] | None = None,
        thinking: ThinkingLike = None,
    ) -> Prompt:
        """What every prompt begins with which begins with these messages.

        Raises:
            RequestError: there are none.
        """
        first = read_messages(messages)
        whole = [
            self.encode(
                [*first, Message(role="user", content=probe)], tools=tools, thinking=thinking
            )
            for probe in PROBES
        ]
        first_whole = whole[0]
        count = common_length(first_whole.ids, whole[1].ids)
        if not count:
            raise RequestError(
                "Prompts that begin with these messages share no token.", field="messages"
            )
        media = tuple(placed for placed in first_whole.media if placed.stop <= count)
        return Prompt(ids=first_whole.ids[:count], media=media)

    def follow_up(
        self,
        earlier: Sequence[Message],
        messages: MessagesLike,
        *,
        tools: Sequence[ToolLike] | None = None,
        thinking: ThinkingLike = None,
    ) -> Prompt:
        """What comes behind a reply to `earlier` for the conversation to go on with `messages`.

        It begins with what the template writes to end a turn.

        Raises:
            TemplateError: the template refuses the conversation, or does not show replies.
        """
        # A template may tell the reply in its own way, and earlier ones in another; what it writes
        # behind one it writes behind all.
        following = read_messages(messages)
        said = _REPLY
        while any(said in message.model_dump_json() for message in following):
            said += "."
        reply = Message(role="assistant", content=said)
        whole = self.encode([*earlier, reply, *following], tools=tools, thinking=thinking)
        _, found, rest = whole.text.rpartition(said)
        if not found:
            raise TemplateError(
                "The chat template does not show what the assistant said.",
                reason="a reply is missing",
                hint="Append the whole conversation to a new session.",
            )
        shown = self.media.places(rest)
        items = [placed.item for placed in whole.media][len(whole.media) - shown :]
        again = self.media.expand(rest, items)
        return Prompt(
            ids=again.ids,
            text=rest,
            opens_reasoning=whole.opens_reasoning,
            tools=whole.tools,
            media=again.media,
        )
