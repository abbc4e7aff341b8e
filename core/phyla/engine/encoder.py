"""From a conversation to a prompt: the checkpoint's template, its tokenizer, its dialect."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from phyla.caching import Breakpoint
from phyla.engine.boundaries import PROBES, Boundaries
from phyla.engine.history import told
from phyla.engine.radix import common_length
from phyla.engine.template import ChatTemplate
from phyla.engine.tool_choice import call_opening
from phyla.errors import RequestError, TemplateError
from phyla.messages import (
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    read_messages,
    read_tools,
)
from phyla.prompt import PinnedPrefix, Prompt
from phyla.validation import check_text, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime

    from phyla.engine.loading import Blueprint
    from phyla.engine.media import Masks, MediaDesk, MediaItem
    from phyla.family import ThinkingLike
    from phyla.messages import Medium, MessagesLike, Tool, ToolLike


def _texts(messages: Sequence[Message], tools: Sequence[Tool]) -> Iterator[str]:
    """Everything that a template may write out of a conversation."""
    for message in messages:
        for block in message.blocks:
            match block:
                case Text() | Reasoning() | ToolResult():
                    yield block.text
                case ToolCall():
                    yield json.dumps(block.arguments, ensure_ascii=False, default=str)
                case _:
                    pass
    for tool in tools:
        yield tool.model_dump_json()


# A reply that no template changes.
_REPLY = "7c1e4a-reply"


@dataclass(frozen=True)
class _Encoded:
    """A prompt, and what it was made from: the rendered text, in it `masks`, and all items."""

    prompt: Prompt
    text: str
    items: tuple[MediaItem, ...]
    masks: Masks


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
        return self._encode(
            read_messages(messages),
            tools=tools,
            tool_choice=tool_choice,
            thinking=thinking,
            breakpoints=breakpoints,
        ).prompt

    def _encode(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolLike] | None = None,
        tool_choice: str = "auto",
        thinking: ThinkingLike = None,
        breakpoints: Sequence[Breakpoint] = (),
        held: Sequence[MediaItem] = (),
    ) -> _Encoded:
        """`held` are the first of the conversation's media, which were opened before."""
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
        conversation = told(messages, dialect, instruction=setting.instruction)
        items = self.media.open(conversation, held=held)
        masks = self.media.masks(_texts(conversation, offered))

        def render(part: Sequence[Message], *, opens_reply: bool = False) -> str:
            return self._template.render(
                part,
                offered,
                add_generation_prompt=opens_reply,
                variables=setting.variables,
                mask=masks.hide if masks else None,
            )

        text = render(conversation, opens_reply=True)
        opens_reasoning = dialect.opens_reasoning(text)
        if opening and opens_reasoning and dialect.reasoning is not None:
            # A reply that must be a call has no time to think.
            text += dialect.reasoning.ending
            opens_reasoning = False
        text += opening
        whole = self.media.expand(text, items, masks=masks)

        def ids(part: str) -> Sequence[int]:
            return self.media.expand(part, items, partly=True, masks=masks).ids

        boundaries = Boundaries(render, ids, conversation, text, whole.ids)
        usual = {boundaries.before_reply()}
        if self._bounded:
            usual.add(boundaries.after_system())
        prompt = Prompt(
            ids=whole.ids,
            media=whole.media,
            text=masks.show(text),
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
        return _Encoded(prompt, text, items, masks)

    def encode_text(self, text: str, media: Sequence[Medium | Mapping[str, Any]] = ()) -> Prompt:
        """As `Engine.encode_text` has it."""
        check_text("text", text)
        read = read_messages({"role": "user", "content": media})[0].media if media else ()
        if len(read) != len(media):
            raise RequestError(
                "media should be images, audio and videos.", field="media", found=media
            )
        items = self.media.open_blocks(read)
        whole = self.media.expand(text, items, add_special_tokens=True)
        return Prompt(ids=whole.ids, text=text, media=whole.media)

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
        whole: list[Prompt] = []
        held: Sequence[MediaItem] = ()
        for probe in PROBES:
            turns = [*first, Message(role="user", content=probe)]
            encoded = self._encode(turns, tools=tools, thinking=thinking, held=held)
            whole.append(encoded.prompt)
            held = encoded.items
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
        held: Sequence[MediaItem] = (),
    ) -> Prompt:
        """What comes behind a reply to `earlier` for the conversation to go on with `messages`.

        It begins with what the template writes to end a turn. `held` are the media of `earlier`.

        Raises:
            TemplateError: the template refuses the conversation, or does not show replies.
        """
        # A template may tell the reply in its own way, and earlier ones in another; what it writes
        # behind one it writes behind all.
        following = read_messages(messages)
        said = _REPLY
        while any(said in repr(message) for message in following):
            said += "."
        reply = Message(role="assistant", content=said)
        turns = [*earlier, reply, *following]
        encoded = self._encode(turns, tools=tools, thinking=thinking, held=held)
        whole = encoded.prompt
        _, found, rest = encoded.text.rpartition(said)
        if not found:
            raise TemplateError(
                "The chat template does not show what the assistant said.",
                reason="a reply is missing",
                hint="Append the whole conversation to a new session.",
            )
        shown = self.media.places(rest)
        items = encoded.items[len(encoded.items) - shown :]
        again = self.media.expand(rest, items, masks=encoded.masks)
        return Prompt(
            ids=again.ids,
            text=encoded.masks.show(rest),
            opens_reasoning=whole.opens_reasoning,
            tools=whole.tools,
            media=again.media,
        )
