"""What a caller says to a model: messages, content blocks and tools. Knows no template and no model.

Everything here is pydantic, and accepts the plain dictionaries of the OpenAI chat format too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from phyla.errors import EmptyInputError, RequestError

Role = Literal["system", "developer", "user", "assistant", "tool"]


class _Block(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Text(_Block):
    """A piece of plain text."""

    type: Literal["text"] = "text"
    text: str


class Reasoning(_Block):
    """What an assistant thought before it answered; templates keep or drop it."""

    type: Literal["reasoning"] = "reasoning"
    text: str


class ToolCall(_Block):
    """A call that the assistant made.

    Attributes:
        id: names the call, so that a result can refer to it.
        name: the tool.
        arguments: the arguments as a mapping; JSON text is parsed on the way in.
        raw: the model's own words for the call, empty when the call came from the caller.
        notes: what had to be repaired in the model's words, or does not fit the tool's schema.
    """

    type: Literal["tool_call"] = "tool_call"
    id: str = ""
    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    raw: str = ""
    notes: tuple[str, ...] = ()

    @field_validator("arguments", mode="before")
    @classmethod
    def _arguments_are_a_mapping(cls, value: object) -> object:
        if value is None or value == "":
            return {}
        if isinstance(value, str):
            try:
                return json.loads(value)
            except ValueError:
                raise ValueError(f"arguments should be a JSON object, found {value!r}") from None
        return value


class ToolResult(_Block):
    """What a tool answered."""

    type: Literal["tool_result"] = "tool_result"
    call_id: str = ""
    name: str | None = None
    text: str = ""


Block: TypeAlias = Annotated[Text | Reasoning | ToolCall | ToolResult, Field(discriminator="type")]


class Message(BaseModel):
    """One turn of a conversation.

    `content` is text, or a list of blocks. The OpenAI spellings `tool_calls` (with a `function`),
    `tool_call_id` and `reasoning_content` are read too and become blocks.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    role: Role
    content: str | tuple[Block, ...] = ""
    name: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _read_openai_spellings(cls, data: object) -> object:
        if not isinstance(data, Mapping):
            return data
        fields = dict(data)
        content = fields.pop("content", None)
        calls = fields.pop("tool_calls", None) or []
        reasoning = fields.pop("reasoning_content", None) or fields.pop("reasoning", None)
        call_id = fields.pop("tool_call_id", None)
        fields.pop("refusal", None)
        if fields.get("role") == "tool" and isinstance(content, str | None):
            block = {"type": "tool_result", "text": content or "", "name": fields.get("name")}
            return {**fields, "content": [{**block, "call_id": call_id or ""}]}
        if not calls and not reasoning:
            return {**fields, "content": "" if content is None else content}
        blocks: list[object] = []
        if reasoning:
            blocks.append({"type": "reasoning", "text": reasoning})
        if isinstance(content, str):
            if content:
                blocks.append({"type": "text", "text": content})
        elif content is not None:
            blocks.extend(content)
        blocks.extend(_flat_call(call) for call in calls)
        return {**fields, "content": blocks}

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The content as blocks; text is one `Text` block, empty text none."""
        if isinstance(self.content, str):
            return (Text(text=self.content),) if self.content else ()
        return self.content

    @property
    def text(self) -> str:
        """The plain text of the content, without reasoning, calls and media."""
        return "".join(block.text for block in self.blocks if isinstance(block, Text))


def _flat_call(call: object) -> object:
    """An OpenAI call `{id, type: function, function: {name, arguments}}` as a ToolCall's fields."""
    if not isinstance(call, Mapping) or "function" not in call:
        return call
    function = call["function"]
    if not isinstance(function, Mapping):
        return call
    return {
        "type": "tool_call",
        "id": call.get("id") or "",
        "name": function.get("name"),
        "arguments": function.get("arguments"),
    }


class Tool(BaseModel):
    """A function that the model may call; `parameters` is a JSON schema of its arguments."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    description: str = ""
    parameters: dict[str, Any] = Field(default_factory=lambda: {"type": "object", "properties": {}})

    @model_validator(mode="before")
    @classmethod
    def _read_openai_spelling(cls, data: object) -> object:
        if isinstance(data, Mapping) and isinstance(data.get("function"), Mapping):
            function = dict(data["function"])
            function.pop("strict", None)
            return function
        return data


MessageLike: TypeAlias = Message | Mapping[str, Any]
MessagesLike: TypeAlias = str | MessageLike | Sequence[MessageLike]
ToolLike: TypeAlias = Tool | Mapping[str, Any] | Callable[..., Any]


def read_messages(messages: MessagesLike) -> tuple[Message, ...]:
    """Read whatever a caller may pass as a conversation.

    Raises:
        EmptyInputError: there is no message.
        RequestError: a message is malformed; the text names its index and field.
    """
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    elif isinstance(messages, Message | Mapping):
        messages = [messages]
    if not messages:
        raise EmptyInputError(
            "The conversation is empty.", field="messages", hint="Pass a message."
        )
    return tuple(_read(Message, item, f"messages[{i}]") for i, item in enumerate(messages))


def read_tools(tools: Sequence[ToolLike] | None) -> tuple[Tool, ...]:
    """Read tool definitions: plain, in the OpenAI form, or as Python functions.

    A function is described by its type hints and its docstring.

    Raises:
        RequestError: a tool is malformed; the text names its index and field.
    """
    return tuple(_read_tool(item, f"tools[{i}]") for i, item in enumerate(tools or ()))


def _read_tool(item: ToolLike, where: str) -> Tool:
    if isinstance(item, Tool | Mapping) or not callable(item):
        return _read(Tool, item, where)
    from phyla.tools.function import tool_from_function

    return tool_from_function(item)


def _read(kind: type[Any], item: object, where: str) -> Any:
    if isinstance(item, kind):
        return item
    try:
        return kind.model_validate(item)
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(str(part) for part in first["loc"])
        field = f"{where}.{path}" if path else where
        raise RequestError(
            f"{field}: {first['msg']}; found {first['input']!r}.", field=field, found=first["input"]
        ) from None
