"""Messages and tools, in Phyla's own form and in the forms of the OpenAI chat format."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phyla.errors import EmptyInputError, RequestError
from phyla.messages import (
    Image,
    Message,
    Reasoning,
    Text,
    Tool,
    ToolCall,
    ToolResult,
    read_messages,
    read_tools,
)

TEXTS = st.text()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


def test_a_text_is_a_users_message():
    assert read_messages("hi") == (Message(role="user", content="hi"),)


def test_one_message_is_a_conversation():
    message = Message(role="user", content="hi")
    assert read_messages(message) == (message,)
    assert read_messages({"role": "user", "content": "hi"}) == (message,)


@pytest.mark.parametrize("nothing", [[], ()])
def test_an_empty_conversation_is_an_error_of_its_own(nothing):
    with pytest.raises(EmptyInputError) as failure:
        read_messages(nothing)
    assert failure.value.field == "messages"


def test_an_openai_conversation_with_a_tool_call_becomes_blocks():
    call, result = read_messages(
        [
            {
                "role": "assistant",
                "content": None,
                "refusal": None,
                "reasoning_content": "The weather is a tool's business.",
                "tool_calls": [
                    {
                        "id": "c1",
                        "type": "function",
                        "function": {"name": "weather", "arguments": '{"city": "Köln"}'},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "name": "weather", "content": "9 °C"},
        ]
    )
    assert call.blocks == (
        Reasoning(text="The weather is a tool's business."),
        ToolCall(id="c1", name="weather", arguments={"city": "Köln"}),
    )
    assert call.text == ""
    assert result.blocks == (ToolResult(call_id="c1", name="weather", text="9 °C"),)


def test_blocks_keep_their_order_reasoning_text_calls():
    (message,) = read_messages(
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
            "reasoning": "r",
            "tool_calls": [{"function": {"name": "f", "arguments": {}}}],
        }
    )
    assert [block.type for block in message.blocks] == ["reasoning", "text", "text", "tool_call"]
    assert message.text == "ab"


@pytest.mark.parametrize("arguments", ["", None, {}, "{}"])
def test_a_call_without_arguments_has_an_empty_mapping(arguments):
    (message,) = read_messages(
        {
            "role": "assistant",
            "tool_calls": [{"function": {"name": "f", "arguments": arguments}}],
        }
    )
    assert message.blocks == (ToolCall(name="f"),)


@given(st.dictionaries(TEXTS, JSON, max_size=4))
def test_arguments_as_json_text_and_as_a_mapping_read_the_same(arguments):
    as_text = ToolCall.model_validate({"name": "f", "arguments": json.dumps(arguments)})
    assert as_text == ToolCall(name="f", arguments=arguments)
    assert list(as_text.arguments) == list(arguments)


@given(st.sampled_from(["system", "developer", "user", "assistant"]), TEXTS)
def test_a_plain_message_survives_being_sent_and_read(role, text):
    message = Message(role=role, content=text)
    assert Message.model_validate_json(message.model_dump_json()) == message
    assert message.text == text


BLOCKS = st.lists(
    st.builds(Text, text=TEXTS)
    | st.builds(Reasoning, text=TEXTS)
    | st.builds(ToolCall, name=TEXTS, id=TEXTS)
    | st.builds(ToolResult, call_id=TEXTS, text=TEXTS),
    max_size=5,
)


@given(BLOCKS)
def test_blocks_survive_being_sent_and_read(blocks):
    message = Message(role="assistant", content=tuple(blocks))
    assert Message.model_validate_json(message.model_dump_json()) == message
    assert message.text == "".join(block.text for block in blocks if isinstance(block, Text))


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ({"role": "wizard", "content": "hi"}, "messages[1].role"),
        ({"content": "hi"}, "messages[1].role"),
        ({"role": "user", "content": "hi", "colour": "red"}, "messages[1].colour"),
        ({"role": "user", "content": 5}, "messages[1].content"),
        ({"role": "user", "content": [{"type": "smell"}]}, "messages[1].content"),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]},
            "messages[1].tool_calls[0].arguments",
        ),
        ("hi", "messages[1]"),
        (7, "messages[1]"),
    ],
)
def test_a_malformed_message_is_named_by_index_and_field(message, field):
    with pytest.raises(RequestError) as failure:
        read_messages([{"role": "user", "content": "hi"}, message])
    assert failure.value.field is not None
    assert failure.value.field.startswith(field)
    assert field in str(failure.value)
    assert failure.value.fault == "request"


def test_a_tool_in_the_openai_form_is_the_plain_tool():
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    plain = {"name": "weather", "description": "Now.", "parameters": schema}
    wrapped = {"type": "function", "function": {**plain, "strict": True}}
    assert read_tools([plain]) == read_tools([wrapped]) == read_tools([Tool(**plain)])


def test_no_tools_are_no_tools():
    assert read_tools(None) == read_tools([]) == ()


def test_a_tool_without_parameters_takes_none():
    (tool,) = read_tools([{"name": "now"}])
    assert tool.parameters == {"type": "object", "properties": {}}


@pytest.mark.parametrize(
    ("tool", "field"),
    [
        ({"description": "x"}, "tools[0].name"),
        ({"type": "function", "function": {"parameters": {}}}, "tools[0].name"),
        ({"name": "f", "parameters": "none"}, "tools[0].parameters"),
        ({"name": "f", "colour": "red"}, "tools[0].colour"),
    ],
)
def test_a_malformed_tool_is_named_by_index_and_field(tool, field):
    with pytest.raises(RequestError) as failure:
        read_tools([tool])
    assert failure.value.field == field


def test_messages_do_not_change():
    message = Message(role="user", content="hi")
    with pytest.raises(ValueError, match="frozen"):
        message.content = "ho"


@pytest.mark.parametrize(
    "content",
    [
        "42",
        [{"type": "text", "text": "42"}],
        ({"type": "text", "text": "4"}, Text(text="2")),
        [{"text": "42"}],
    ],
)
def test_a_tools_answer_keeps_its_call_id_however_it_is_written(content):
    (message,) = read_messages({"role": "tool", "tool_call_id": "c1", "content": content})
    assert message.blocks == (ToolResult(call_id="c1", text="42"),)


@pytest.mark.parametrize("content", [None, "", []])
def test_a_tool_may_answer_nothing(content):
    (message,) = read_messages({"role": "tool", "tool_call_id": "c1", "content": content})
    assert message.blocks == (ToolResult(call_id="c1"),)


def test_a_tools_answer_in_blocks_stays_as_it_is():
    block = {"type": "tool_result", "call_id": "c1", "text": "42"}
    (message,) = read_messages({"role": "tool", "content": [block]})
    assert message.blocks == (ToolResult(call_id="c1", text="42"),)
    with pytest.raises(RequestError, match="call_id"):
        read_messages({"role": "tool", "tool_call_id": "c2", "content": [block]})


def call(arguments: object) -> dict[str, object]:
    return {
        "role": "assistant",
        "tool_calls": [{"function": {"name": "f", "arguments": arguments}}],
    }


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ({"role": "assistant", "tool_calls": 5}, "tool_calls"),
        ({"role": "assistant", "tool_calls": "f"}, "tool_calls"),
        ({"role": "assistant", "tool_calls": [5]}, "tool_calls[0]"),
        ({"role": "assistant", "tool_calls": [{"function": 5}]}, "tool_calls[0].function"),
        ({"role": "assistant", "tool_calls": [{"function": {}}]}, "tool_calls[0].name"),
        ({"role": "assistant", "tool_calls": [{"id": 5, "function": {"name": "f"}}]},
         "tool_calls[0].id"),
        (call("[" * 100_000), "tool_calls[0].arguments"),
        (call("[1]"), "tool_calls[0].arguments"),
        ({"role": "assistant", "reasoning": "r", "content": 5}, "content"),
        ({"role": "assistant", "reasoning_content": 5, "content": "x"}, "reasoning_content"),
        ({"role": "tool", "tool_call_id": 5, "content": "x"}, "tool_call_id"),
        ({"role": "tool", "tool_call_id": "c", "content": 5}, "content"),
        ({"role": "tool", "tool_call_id": "c", "content": [5]}, "content[0]"),
        ({"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": 5}]},
         "content[0].text"),
        ({"role": "tool", "content": "x", "name": 5}, "name"),
        ({"role": "user", "tool_call_id": "c", "content": "x"}, "tool_call_id"),
        ({"role": "user", "content": 5}, "content"),
        ({"role": "user", "content": {"type": "text", "text": "x"}}, "content"),
        ({"role": "user", "content": ["x"]}, "content[0]"),
        ({"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "smell"}]},
         "content[1].type"),
        ({"role": "user", "content": [{"text": "x"}]}, "content[0].type"),
        ({"role": "user", "content": [{"type": "text", "text": 5}]}, "content[0].text"),
        ({"role": "user", "content": [{"type": "text", "text": "x", "a": 1}]}, "content[0].a"),
        ({"role": "assistant", "content": "", "audio": {"id": "a"}}, "audio"),
        ({"role": "assistant", "function_call": {"name": "f"}}, "function_call"),
        ({"role": ["user"], "content": "x"}, "role"),
    ],
)  # fmt: skip
def test_a_wrong_type_is_named_by_the_field_that_the_caller_wrote(message, field):
    with pytest.raises(RequestError) as failure:
        read_messages([message])
    assert failure.value.field == f"messages[0].{field}"
    assert str(failure.value).startswith(f"messages[0].{field} ")
    assert len(str(failure.value)) < 500


@pytest.mark.parametrize("wrong", [5, b"hi", 1.5, True, {"hi"}, object()])
def test_what_is_no_conversation_is_the_requests_fault(wrong):
    with pytest.raises(RequestError, match="messages should be") as failure:
        read_messages(wrong)
    assert failure.value.field == "messages"


def test_what_an_openai_reply_carries_besides_is_left_out():
    reply = {
        "role": "assistant",
        "content": "hi",
        "refusal": None,
        "annotations": [],
        "audio": None,
        "function_call": None,
        "tool_calls": None,
        "reasoning": "r",
        "reasoning_content": "r",
    }
    assert read_messages(reply)[0].blocks == (Reasoning(text="r"), Text(text="hi"))


PARTS = {
    "ours": ({"type": "image", "source": "cat.png"}, "cat.png"),
    "a block": (Image(source="cat.png"), "cat.png"),
    "OpenAI": ({"type": "image_url", "image_url": {"url": "cat.png", "detail": "low"}}, "cat.png"),
    "OpenAI, short": ({"type": "input_image", "image_url": "cat.png"}, "cat.png"),
    "Hugging Face": ({"type": "image", "image": "cat.png"}, "cat.png"),
    "Hugging Face, by its place": ({"type": "image", "url": "cat.png"}, "cat.png"),
    "Anthropic": (
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
        "data:;base64,aGk=",
    ),
    "Anthropic, by its place": (
        {"type": "image", "source": {"type": "url", "url": "https://a.b/c"}},
        "https://a.b/c",
    ),
    "sound": (
        {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}},
        "data:;base64,aGk=",
    ),
    "a film": ({"type": "video_url", "video_url": {"url": "a.mp4"}, "fps": 2}, "a.mp4"),
}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("role", ["user", "assistant"])
def test_media_are_read_in_every_spelling(part, role):
    form, source = PARTS[part]
    message = read_messages([{"role": role, "content": [form]}])[0]
    assert [block.source for block in message.media] == [source]
    assert message.text == ""


def test_media_of_a_tools_answer_stay_behind_it():
    content = [{"type": "text", "text": "a"}, {"type": "image", "url": "x"}, "b"]
    with pytest.raises(RequestError):
        read_messages([{"role": "tool", "content": content}])
    content[2] = {"type": "text", "text": "b"}
    message = read_messages([{"role": "tool", "tool_call_id": "1", "content": content}])[0]
    assert message.blocks == (ToolResult(call_id="1", text="ab"), Image(source="x"))


@pytest.mark.parametrize(
    ("part", "field"),
    [
        ({"type": "image"}, "content[0]"),
        ({"type": "image", "image": "a", "url": "b"}, "content[0]"),
        ({"type": "image", "source": {"x": 1}}, "content[0].source"),
        ({"type": "image", "source": "a", "size": 1}, "content[0].size"),
        ({"type": "image", "source": "a", "max_tokens": 0}, "content[0].max_tokens"),
        ({"type": "video", "source": "a", "fps": -1}, "content[0].fps"),
    ],
)
def test_a_medium_that_says_too_little_or_too_much_is_refused(part, field):
    with pytest.raises(RequestError) as failure:
        read_messages([{"role": "user", "content": [part]}])
    assert failure.value.field == f"messages[0].{field}"


def test_a_message_with_media_can_be_written_down():
    message = Message(role="user", content=[Image(source=b"bytes"), Image(source="cat.png")])
    assert '"cat.png"' in message.model_dump_json()


def test_a_tool_that_is_in_no_list_is_told_how_to_write_it():
    def add(a: int, b: int) -> int:
        return a + b

    with pytest.raises(RequestError, match=r"tools should be a list.*Write tools=\[add\]\."):
        read_tools(add)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("wrong", [5, "f", {"name": "f"}, Tool(name="f"), True])
def test_tools_that_are_no_list_are_the_requests_fault(wrong):
    with pytest.raises(RequestError, match="tools should be a list") as failure:
        read_tools(wrong)
    assert failure.value.field == "tools"


def test_two_tools_of_one_name_are_refused():
    with pytest.raises(RequestError, match=r"tools\[1\] is named 'f', as tools\[0\]") as failure:
        read_tools([{"name": "f"}, {"name": "f"}])
    assert failure.value.field == "tools[1].name"


@pytest.mark.parametrize("name", ["auto", "none", "required"])
def test_a_tool_may_not_be_named_like_a_choice(name):
    with pytest.raises(RequestError, match="tool_choice"):
        read_tools([{"name": name}])


def test_null_in_a_tool_is_absent():
    wrapped = {"function": {"name": "f", "description": None, "parameters": None, "strict": None}}
    assert read_tools([wrapped]) == read_tools([{"name": "f", "description": None}])
    assert read_tools([wrapped]) == (Tool(name="f"),)
