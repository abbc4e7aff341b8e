"""Renders a conversation with a checkpoint's own chat template. Knows no tokens and no model.

A chat template is a Jinja program that somebody else wrote, so it runs in Jinja's sandbox. It finds
there what templates on the Hub are written for (transformers' documentation, "Chat templates"): the
tags `break`, `continue` and `generation`, the filter `tojson` that keeps key order and escapes
nothing, and the functions `raise_exception` and `strftime_now`.
"""

from __future__ import annotations

import json
import traceback
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn

import jinja2
import jinja2.meta
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

from phyla.errors import RequestError, TemplateError
from phyla.messages import (
    Audio,
    Image,
    Message,
    Reasoning,
    Text,
    Tool,
    ToolCall,
    ToolResult,
    Video,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from jinja2.parser import Parser

    from phyla.messages import Block

_OURS = frozenset({"messages", "tools", "add_generation_prompt"})
_FEW = 64  # messages of which each one is tried in the search for the one that fails
_PROBE = "7c1e4a"  # a text that no template writes by itself


class ChatTemplate:
    """A checkpoint's chat templates, compiled when first used."""

    def __init__(
        self,
        templates: Mapping[str, str],
        special_tokens: Mapping[str, str],
        clock: Callable[[], datetime] = datetime.now,
    ) -> None:
        """Prepare to render.

        Args:
            templates: Jinja sources by name: `default`, and perhaps `tool_use`, which is taken when
                there are tools.
            special_tokens: `bos_token` and so on, for the templates to write.
            clock: tells `strftime_now` the time. A date in a prompt changes every day, so a test or
                a prompt cache may want its own.
        """
        self._templates = dict(templates)
        self._special_tokens = dict(special_tokens)
        self._compiled: dict[str, _Compiled] = {}
        self._environment = _environment(clock)

    @property
    def variables(self) -> frozenset[str]:
        """The names that the usual template reads from outside, such as `enable_thinking`.

        Raises:
            TemplateError: there is no usual template, or it is not valid Jinja.
        """
        return self._compile("default").variables

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool] = (),
        *,
        add_generation_prompt: bool = True,
        variables: Mapping[str, object] | None = None,
        mask: Callable[[str], str] | None = None,
    ) -> str:
        """Render a conversation to the text that the model reads.

        Args:
            messages: the conversation.
            tools: what the model may call.
            add_generation_prompt: end with the opening of an assistant turn.
            variables: further names for the template, such as `enable_thinking`.
            mask: is applied to all texts of messages and tools before the template sees them.

        Raises:
            TemplateError: there is no template, it is not valid Jinja, or it failed: `index` and
                `role` say at which message, `reason` why in the template's own words.
            RequestError: `variables` names something that is given in another way.
        """
        variables = variables or {}
        if clash := sorted(_OURS & variables.keys()):
            raise RequestError(
                f"The template variable {clash[0]!r} is not free.",
                field="variables",
                found=clash[0],
                hint=f"Pass it as the argument {clash[0]!r}.",
            )
        template = self._compile(
            "tool_use" if tools and "tool_use" in self._templates else "default"
        )
        turns = _turns(messages, as_parts=template.reads_only_parts)
        offered = [_tool(tool) for tool in tools]
        if mask is not None:
            turns = [replace(turn, fields=_masked(turn.fields, mask)) for turn in turns]
            offered = _masked(offered, mask)
        context = {
            "documents": None,
            **self._special_tokens,
            **variables,
            "tools": offered or None,
        }

        def attempt(count: int, *, opening: bool = False) -> str:
            """Render the first `count` messages."""
            given = [turn.fields for turn in turns if turn.index < count]
            return template.jinja.render(context, messages=given, add_generation_prompt=opening)

        try:
            return attempt(len(messages), opening=add_generation_prompt)
        except Exception as error:  # a template can raise whatever Python can
            raise _failure(error, messages, attempt) from error

    def _compile(self, name: str) -> _Compiled:
        if name not in self._compiled:
            self._compiled[name] = self._compile_anew(name)
        return self._compiled[name]

    def _compile_anew(self, name: str) -> _Compiled:
        source = self._templates.get(name)
        if source is None:
            named = ", ".join(sorted(self._templates))
            other = f" named {name!r}, only: {named}" if named else ""
            raise TemplateError(
                f"The checkpoint has no chat template{other}.",
                reason="no chat template",
                hint="Add its chat_template.jinja, or generate from plain text or token ids.",
            )
        try:
            jinja = self._environment.from_string(source)
            tree = self._environment.parse(source)
        except jinja2.TemplateSyntaxError as error:
            raise TemplateError(
                f"The chat template {name!r} is not valid Jinja, line {error.lineno}: "
                f"{error.message}",
                reason=error.message,
                hint="Compare the checkpoint's chat template with the published one.",
            ) from error
        return _Compiled(
            jinja=jinja,
            variables=frozenset(jinja2.meta.find_undeclared_variables(tree)),
            reads_only_parts=_reads_only_parts(jinja, self._special_tokens),
        )


@dataclass(frozen=True, kw_only=True)
class _Compiled:
    jinja: jinja2.Template
    variables: frozenset[str]
    reads_only_parts: bool


def _reads_only_parts(jinja: jinja2.Template, special_tokens: Mapping[str, str]) -> bool:
    """Whether the template shows a list of parts and drops a plain string.

    Some templates of multimodal models loop over `content` and look at each part's `type`; a string
    has characters there, and would vanish without an error.
    """

    def shows(content: object) -> bool:
        message = {"role": "user", "content": content}
        try:
            text = jinja.render(special_tokens, messages=[message], tools=None, documents=None)
        except Exception:  # noqa: BLE001 (a template can raise whatever Python can)
            return False
        return _PROBE in text

    return not shows(_PROBE) and shows([{"type": "text", "text": _PROBE}])


# What a template gets to see.


# Templates do not agree on the name.
_REASONING = ("reasoning_content", "reasoning", "thinking", "thought")


@dataclass(frozen=True)
class _Turn:
    """A message in the form that templates expect; `index` is the message that it came from."""

    index: int
    fields: dict[str, Any]


def _turns(messages: Sequence[Message], *, as_parts: bool) -> list[_Turn]:
    """The OpenAI form. A message's tool results come first, as a turn of role `tool` each."""
    turns: list[_Turn] = []
    called: dict[str, str] = {}  # tool names by the id of the call
    for index, message in enumerate(messages):
        blocks = message.blocks
        called |= {block.id: block.name for block in blocks if isinstance(block, ToolCall)}
        results, rest = _answers(blocks)
        turns += [_Turn(index, _result(block, shown, called)) for block, shown in results]
        if rest or not blocks:
            spoken = message.model_copy(update={"content": rest}) if results else message
            turns.append(_Turn(index, _spoken(spoken, as_parts=as_parts)))
    return turns


def _answers(
    blocks: Sequence[Block],
) -> tuple[list[tuple[ToolResult, list[Block]]], tuple[Block, ...]]:
    """Each tool's answer with the media behind it, which are a part of it; and what else there is."""
    results: list[tuple[ToolResult, list[Block]]] = []
    rest: list[Block] = []
    for block in blocks:
        if isinstance(block, ToolResult):
            results.append((block, []))
        elif results and not rest and isinstance(block, Image | Audio | Video):
            results[-1][1].append(block)
        else:
            rest.append(block)
    return results, tuple(rest)


def _spoken(message: Message, *, as_parts: bool) -> dict[str, Any]:
    text = message.text
    fields: dict[str, Any] = {"role": message.role, "content": text}
    if message.media:
        fields["content"] = _parts(message.blocks)
    elif as_parts:
        fields["content"] = [{"type": "text", "text": text}] if text else []
    if message.name is not None:
        fields["name"] = message.name
    if reasoning := "".join(b.text for b in message.blocks if isinstance(b, Reasoning)):
        fields |= dict.fromkeys(_REASONING, reasoning)
    if calls := [_call(block) for block in message.blocks if isinstance(block, ToolCall)]:
        fields["tool_calls"] = calls
    return fields


def _masked(value: Any, mask: Callable[[str], str]) -> Any:
    """The same with every text in it masked; a medium's type is none."""
    match value:
        case str():
            return mask(value)
        case dict():
            return {key: _masked(inner, mask) for key, inner in value.items()}
        case list() | tuple():
            return [_masked(inner, mask) for inner in value]
        case _:
            return value


def _parts(blocks: Sequence[Block]) -> list[dict[str, Any]]:
    """Text and media as a list of parts, texts that follow one another as one."""
    parts: list[dict[str, Any]] = []
    for block in blocks:
        if isinstance(block, Text):
            if parts and parts[-1]["type"] == "text":
                parts[-1] = {"type": "text", "text": parts[-1]["text"] + block.text}
            elif block.text:
                parts.append({"type": "text", "text": block.text})
        elif isinstance(block, Image | Audio | Video):
            parts.append({"type": block.type})
    return parts


def _call(block: ToolCall) -> dict[str, Any]:
    function = {"name": block.name, "arguments": block.arguments}
    return {"type": "function", **({"id": block.id} if block.id else {}), "function": function}


def _result(block: ToolResult, shown: Sequence[Block], called: Mapping[str, str]) -> dict[str, Any]:
    fields: dict[str, Any] = {"role": "tool", "content": block.text}
    if shown:
        fields["content"] = _parts([Text(text=block.text), *shown])
    if name := block.name or (called.get(block.call_id) if block.call_id else None):
        fields["name"] = name
    if block.call_id:
        fields["tool_call_id"] = block.call_id
    return fields


def _tool(tool: Tool) -> dict[str, Any]:
    function = {
        "name": tool.name, "description": tool.description, "parameters": tool.parameters,
    }  # fmt: skip
    return {"type": "function", "function": function}


# Where and why a template failed.


class _Refusal(Exception):
    """What a template raises with `raise_exception`."""


def _refuse(message: str) -> NoReturn:
    raise _Refusal(message)


def _failure(
    error: Exception, messages: Sequence[Message], attempt: Callable[[int], str]
) -> TemplateError:
    reason = _reason(error)
    index = _failing_message(error, len(messages), attempt)
    role = None if index is None else messages[index].role
    where = "the conversation" if index is None else f"message {index} (role {role!r})"
    if isinstance(error, _Refusal):
        what = f"The chat template refused {where}"
    else:
        line = _line(error)
        what = f"The chat template failed at {where}" + (f", in its line {line}" if line else "")
    return TemplateError(
        f"{what}: {reason.rstrip('.')}.",
        index=index,
        role=role,
        reason=reason,
        hint=_hint(error, index, messages),
    )


def _failing_message(error: Exception, count: int, attempt: Callable[[int], str]) -> int | None:
    """The last message of the shortest beginning of the conversation that fails in the same way.

    None when it is no message's doing: the template fails without any, or only when it opens the
    assistant's turn. In a long conversation it is taken for granted that what fails keeps failing
    when messages follow.
    """

    def fails(length: int) -> bool:
        try:
            attempt(length)
        except Exception as other:  # noqa: BLE001 (a template can raise whatever Python can)
            return type(other) is type(error) and _reason(other) == _reason(error)
        return False

    if count <= _FEW:
        shortest = next((length for length in range(count + 1) if fails(length)), 0)
        return shortest - 1 if shortest else None
    if fails(0) or not fails(count):
        return None
    # Rendering every beginning of a long conversation would take the square of its length.
    good, bad = 0, count
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (good, middle) if fails(middle) else (middle, bad)
    return bad - 1


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


def _line(error: Exception) -> int | None:
    """The innermost line of the template in the traceback, which Jinja maps to its source."""
    frames = traceback.extract_tb(error.__traceback__)
    return next((f.lineno for f in reversed(frames) if f.filename == "<template>"), None)


def _hint(error: Exception, index: int | None, messages: Sequence[Message]) -> str | None:
    if isinstance(error, SecurityError):
        return "The template leaves the sandbox; use one that does not."
    if index is None:
        return None
    role = messages[index].role
    if role in ("system", "developer"):
        return "Put its text into the first user message."
    if index and messages[index - 1].role == role != "tool":
        return f"Join the {role} messages {index - 1} and {index} into one."
    if role == "tool":
        return "The template may know no tool results; put them into a user message."
    return None


# The environment of Hub templates.


def _environment(clock: Callable[[], datetime]) -> jinja2.Environment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.loopcontrols", _GenerationTag],
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda style: clock().strftime(style)
    return environment


class _GenerationTag(Extension):
    """`{% generation %}`: marks the assistant's words for training; here they are rendered as is.

    Names set inside stay inside, as in transformers.
    """

    tags = {"generation"}  # noqa: RUF012 (Jinja's own way to declare them)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as models were trained on; Jinja's own filter sorts keys and escapes for HTML."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )
