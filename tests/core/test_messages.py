"""Messages and tools, in Phyla's own form and in the forms of the OpenAI chat format."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phyla.errors import EmptyInputError, RequestError
from phyla.messages import (
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
            "messages[1].content",
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
