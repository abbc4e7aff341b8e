"""What a caller says to a model: messages, content blocks and tools. Knows no template and no model.

Everything here is pydantic, and accepts the plain dictionaries of the OpenAI chat format too.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    field_serializer,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from phyla.errors import EmptyInputError, RequestError
from phyla.validation import complaint, place, shown

if TYPE_CHECKING:
    from phyla.modality import Modality

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
            except (ValueError, RecursionError):
                raise ValueError("it is no JSON object that can be read") from None
        return value


class ToolResult(_Block):
    """What a tool answered."""

    type: Literal["tool_result"] = "tool_result"
    call_id: str = ""
    name: str | None = None
    text: str = ""


class _Medium(_Block):
    """What images, audio and videos have in common.

    Attributes:
        source: bytes, a path, a `file:`, `data:` or (where allowed) `http(s):` URL, base64 text, an
            object of Pillow's, or an array; see `phyla.media`.
        max_tokens: the most tokens of the prompt that it may take; None leaves it to the model.
    """

    source: Any
    max_tokens: int | None = Field(default=None, gt=0, strict=True)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(source={_short(self.source)})"

    __str__ = __repr__

    @field_validator("source")
    @classmethod
    def _there_is_a_source(cls, value: object) -> object:
        if value is None:
            raise ValueError("it is None, where bytes, a path, a URL or a picture should be")
        return value

    @field_serializer("source", when_used="json")
    def _source_as_text(self, value: object) -> str:
        if isinstance(value, str):
            return value
        if isinstance(value, bytes | bytearray | memoryview):
            return f"data:;base64,{base64.b64encode(value).decode()}"
        if isinstance(value, os.PathLike):
            return os.fsdecode(value)
        raise ValueError(f"{shown(value)} cannot be written as JSON; pass bytes or a path")

    def __eq__(self, other: object) -> bool:
        """Two are one if their fields are; sources that have no simple equality, by identity."""
        if type(other) is not type(self):
            return False
        theirs = cast("_Medium", other)
        mine = self.model_dump(exclude={"source"})
        return mine == theirs.model_dump(exclude={"source"}) and _one(self.source, theirs.source)

    def __hash__(self) -> int:
        return hash((type(self), self.max_tokens))


def _short(source: object) -> str:
    """A source in few words."""
    if isinstance(source, str):
        return repr(source if len(source) <= 80 else f"{source[:76]} ...")
    if isinstance(source, bytes | bytearray | memoryview):
        return f"<{len(source)} bytes>"
    return repr(source) if isinstance(source, os.PathLike) else f"<{type(source).__name__}>"


def _one(source: object, other: object) -> bool:
    simple = (str, bytes, os.PathLike)
    if isinstance(source, simple) and isinstance(other, simple):
        return source == other
    return source is other


class Image(_Medium):
    """A picture."""

    type: Literal["image"] = "image"


class Audio(_Medium):
    """A sound.

    Attributes:
        rate: samples a second, where the source is an array and does not say.
    """

    type: Literal["audio"] = "audio"
    rate: int | None = Field(default=None, gt=0, strict=True)


class Video(_Medium):
    """A film: its pictures, without the sound.

    Attributes:
        fps: how many frames of each second to look at; None leaves it to the model.
        max_frames: the most frames to look at.
        source_fps: frames a second of a source that is an array or a list of pictures.
    """

    type: Literal["video"] = "video"
    fps: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    max_frames: int | None = Field(default=None, gt=0, strict=True)
    source_fps: float | None = Field(default=None, gt=0, allow_inf_nan=False)


Medium: TypeAlias = Image | Audio | Video

_BLOCKS = (Text, Reasoning, ToolCall, ToolResult, Image, Audio, Video)

Block: TypeAlias = Annotated[
    Text | Reasoning | ToolCall | ToolResult | Image | Audio | Video, Field(discriminator="type")
]


def _kind_of_content(value: object) -> str | None:
    if isinstance(value, str):
        return "text"
    return "blocks" if isinstance(value, list | tuple) else None


# Told apart by hand, so that an error is about what the caller meant.
Content: TypeAlias = Annotated[
    Annotated[str, Tag("text")] | Annotated[Sequence[Block], AfterValidator(tuple), Tag("blocks")],
    Discriminator(
        _kind_of_content,
        custom_error_type="content",
        custom_error_message="Input should be text or a list of blocks",
    ),
]

# What replies in the OpenAI format carry beside their content and is nothing to a model, as long as
# it has the value that stands here; `...` is any.
_IDLE: Mapping[str, object] = {
    "refusal": ...,
    "annotations": ...,
    "audio": None,
    "function_call": None,
}


class Message(BaseModel):
    """One turn of a conversation.

    `content` is text, or a list of blocks. The OpenAI spellings `tool_calls` (with a `function`),
    `tool_call_id` and `reasoning_content` are read too and become blocks.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    role: Role
    content: Content = ""
    name: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _read_openai_spellings(cls, data: object) -> object:
        if not isinstance(data, Mapping):
            return data
        fields = dict(cast("Mapping[str, Any]", data))
        for key, idle in _IDLE.items():
            if key in fields and (idle is ... or fields[key] is idle):
                del fields[key]
        content = _with_media(fields.pop("content", None))
        calls = _of(list | tuple, fields, "tool_calls", "a list")
        thoughts = [_of(str, fields, key, "text") for key in ("reasoning_content", "reasoning")]
        reasoning = next((thought for thought in thoughts if thought), None)
        call_id = _of(str, fields, "tool_call_id", "text")
        if fields.get("role") == "tool" and not calls and not reasoning:
            return {**fields, "content": _tool_content(content, call_id, fields.get("name"))}
        if call_id is not None:
            raise _wrong("tool_call_id", "should stand in a message of role 'tool'", call_id)
        if not calls and not reasoning:
            return {**fields, "content": "" if content is None else content}
        blocks: list[object] = []
        if reasoning:
            blocks.append(Reasoning(text=reasoning))
        if isinstance(content, str):
            if content:
                blocks.append({"type": "text", "text": content})
        elif isinstance(content, list | tuple):
            blocks.extend(cast("Sequence[object]", content))
        elif content is not None:
            raise _wrong("content", "should be text or a list of blocks", content)
        blocks.extend(_read_call(call, f"tool_calls[{i}]") for i, call in enumerate(calls or ()))
        return {**fields, "content": blocks}

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The content as blocks; text is one `Text` block, empty text none."""
        if isinstance(self.content, str):
            return (Text(text=self.content),) if self.content else ()
        return tuple(self.content)

    @property
    def text(self) -> str:
        """The plain text of the content, without reasoning, calls and media."""
        return "".join(block.text for block in self.blocks if isinstance(block, Text))

    @property
    def media(self) -> tuple[Medium, ...]:
        """The images, audio and videos, in order."""
        return tuple(block for block in self.blocks if isinstance(block, Image | Audio | Video))


def _wrong(field: str, complaint: str, found: object) -> PydanticCustomError:
    """An error about a field of the OpenAI format, which is none of the model's own."""
    context = {"field": field, "complaint": complaint, "found": found}
    return PydanticCustomError("openai", "{field} {complaint}", context)


def _of(kind: Any, fields: dict[str, Any], key: str, expected: str) -> Any:
    """Take a key out of a message; None when it is absent."""
    value = fields.pop(key, None)
    if value is not None and not isinstance(value, kind):
        raise _wrong(key, f"should be {expected}", value)
    return value


def _inner(error: ValidationError, where: str) -> PydanticCustomError:
    """An error in a part of a message, which is somewhere else in the caller's own."""
    first = error.errors()[0]
    field = place(where, first["loc"])
    return _wrong(field, complaint(first).rpartition("; found ")[0] or "is missing", first["input"])


def _tool_content(content: object, call_id: str | None, name: object) -> object:
    """A tool's answer as one block, from text or from a list of texts; its media stay behind it."""
    media: tuple[object, ...] = ()
    if content is None or isinstance(content, str):
        text = content or ""
    elif isinstance(content, list | tuple):
        parts = cast("Sequence[object]", content)
        if any(_type(part) == "tool_result" for part in parts):
            if call_id is not None:
                complaint = "should be the `call_id` of the tool_result in the content"
                raise _wrong("tool_call_id", complaint, call_id)
            return parts
        media = tuple(part for part in parts if _type(part) in _MODALITIES)
        texts = [(i, part) for i, part in enumerate(parts) if _type(part) not in _MODALITIES]
        text = "".join(_read_text(part, f"content[{i}]") for i, part in texts)
    else:
        return content
    named = name if isinstance(name, str) else None
    return (ToolResult(text=text, name=named, call_id=call_id or ""), *media)


# How formats in use call a medium: OpenAI's two, Anthropic's, and that of Hugging Face's templates.
_MODALITIES: Mapping[object, Modality] = {
    "image": "image", "image_url": "image", "input_image": "image",
    "audio": "audio", "audio_url": "audio", "input_audio": "audio",
    "video": "video", "video_url": "video", "input_video": "video",
}  # fmt: skip

# Where such a part keeps what it is about, and what else it may hold that is nothing to a model.
_SOURCES = ("source", "url", "path", "data", "base64")
_ASIDE = ("detail", "format", "media_type", "mime_type", "cache_control")


def _with_media(content: object) -> object:
    """The content with the media of other formats in our own."""
    if not isinstance(content, list | tuple):
        return content
    parts = cast("Sequence[object]", content)
    return [_read_medium(part, f"content[{i}]") for i, part in enumerate(parts)]


def _read_medium(part: object, where: str) -> object:
    kind = _type(part)
    if not isinstance(kind, str) or kind not in _MODALITIES or not isinstance(part, Mapping):
        return part
    modality = _MODALITIES[kind]
    given = cast("Mapping[str, Any]", part)
    fields = {key: value for key, value in given.items() if value is not None and key != "type"}
    for key in _ASIDE:
        fields.pop(key, None)
    keys = [key for key in dict.fromkeys((kind, modality, f"{modality}_url", *_SOURCES))
            if fields.get(key) is not None]  # fmt: skip
    if len(keys) != 1:
        complaint = f"should say in one field what {modality} it is, such as 'source'"
        raise _wrong(where, complaint, sorted(fields))
    source = fields.pop(keys[0])
    return {**fields, "type": modality, "source": _source(source, f"{where}.{keys[0]}", keys[0])}


def _source(value: object, where: str, key: str) -> object:
    if isinstance(value, Mapping):
        inner = cast("Mapping[str, Any]", value)
        keys = [name for name in _SOURCES if inner.get(name) is not None]
        if len(keys) != 1:
            raise _wrong(where, "should hold a 'url' or 'data'", sorted(inner))
        return _source(inner[keys[0]], f"{where}.{keys[0]}", keys[0])
    if key in ("data", "base64") and isinstance(value, str) and not value.startswith("data:"):
        return f"data:;base64,{value}"  # said to be so, where it might be a path
    return value


def _type(part: object) -> object:
    if isinstance(part, Mapping):
        return cast("Mapping[str, object]", part).get("type")
    return part.type if isinstance(part, _BLOCKS) else None


def _read_text(part: object, where: str) -> str:
    try:
        return Text.model_validate(part).text
    except ValidationError as error:
        raise _inner(error, where) from None


def _read_call(call: object, where: str) -> ToolCall:
    """A call, plain or as OpenAI's `{id, type: function, function: {name, arguments}}`."""
    if isinstance(call, Mapping) and "function" in call:
        outer = cast("Mapping[str, Any]", call)
        function = outer["function"]
        if not isinstance(function, Mapping):
            raise _wrong(f"{where}.function", "should be a mapping", function)
        inner = cast("Mapping[str, Any]", function)
        call = {key: inner[key] for key in ("name", "arguments") if key in inner}
        call["id"] = outer.get("id") or ""
    try:
        return ToolCall.model_validate(call)
    except ValidationError as error:
        raise _inner(error, where) from None


class Tool(BaseModel):
    """A function that the model may call; `parameters` is a JSON schema of its arguments."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    description: str = ""
    parameters: dict[str, Any] = Field(default_factory=lambda: {"type": "object", "properties": {}})

    @model_validator(mode="before")
    @classmethod
    def _read_openai_spelling(cls, data: object) -> object:
        if not isinstance(data, Mapping):
            return data
        fields = dict(cast("Mapping[str, Any]", data))
        function = fields.get("function")
        if isinstance(function, Mapping):
            fields = dict(cast("Mapping[str, Any]", function))
            fields.pop("strict", None)
        for key in ("description", "parameters"):
            if key in fields and fields[key] is None:
                del fields[key]
        return fields


MessageLike: TypeAlias = Message | Mapping[str, Any]
MessagesLike: TypeAlias = str | MessageLike | Sequence[MessageLike]
ToolLike: TypeAlias = Tool | Mapping[str, Any] | Callable[..., Any]

# Words that `tool_choice` understands otherwise.
_CHOICES = ("auto", "none", "required")


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
    elif messages is not None and not _is_list(messages):
        raise RequestError(
            f"messages should be text or a list of messages; found {shown(messages)}.",
            field="messages",
            expected="text or a list of messages",
            found=messages,
        )
    if not messages:
        raise EmptyInputError(
            "The conversation is empty.", field="messages", hint="Pass a message."
        )
    return tuple(_read(Message, item, f"messages[{i}]") for i, item in enumerate(messages))


def read_tools(tools: Sequence[ToolLike] | None) -> tuple[Tool, ...]:
    """Read tool definitions: plain, in the OpenAI form, or as Python functions.

    A function is described by its type hints and its docstring.

    Raises:
        RequestError: a tool is malformed, or its name is taken; the text names index and field.
    """
    if tools is None:
        return ()
    if not _is_list(tools):
        name = getattr(tools, "__name__", None) if callable(tools) else None
        raise RequestError(
            f"tools should be a list; found {shown(tools)}.",
            field="tools",
            expected="a list of tools",
            found=tools,
            hint=f"Write tools=[{name or '...'}].",
        )
    read = tuple(_read_tool(item, f"tools[{i}]") for i, item in enumerate(tools))
    first: dict[str, int] = {}
    for i, tool in enumerate(read):
        if tool.name in _CHOICES:
            why = "which `tool_choice` understands otherwise"
        elif tool.name in first:
            why = f"as tools[{first[tool.name]}] is already"
        else:
            first[tool.name] = i
            continue
        raise RequestError(
            f"tools[{i}] is named {tool.name!r}, {why}.",
            field=f"tools[{i}].name",
            found=tool.name,
            hint="Give it another name.",
        )
    return read


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray)


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
        if first["type"] == "openai":
            context = first.get("ctx", {})
            field, found = f"{where}.{context['field']}", context["found"]
            text = f"{field} {context['complaint']}; found {shown(found)}."
        else:
            field, found = place(where, _own_path(first["loc"])), first["input"]
            text = f"{field} {complaint(first)}"
            if first["type"].startswith("union_tag"):
                field = f"{field}.type"
                found = _type(found)
                text = f"{field} should be a kind of block; found {shown(found)}."
        raise RequestError(text, field=field, found=found) from None


def _own_path(parts: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Pydantic's path without the names of the alternatives that it took on its way."""
    if parts[:2] not in (("content", "text"), ("content", "blocks")):
        return parts
    return (parts[0], *parts[2:3], *parts[4:])
