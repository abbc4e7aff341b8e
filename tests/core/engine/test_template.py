"""Templates get what Hub templates are written for, and say where and why they fail."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phyla.engine.template import ChatTemplate
from phyla.errors import RequestError, TemplateError
from phyla.messages import Message, Reasoning, Text, ToolCall, ToolResult, read_messages, read_tools

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PLAIN = """
{%- for message in messages %}
    {{- '<|' + message.role + '|>' + message.content + '<|end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"""

# Gemma 2's rules: no system role, and turns alternate.
STRICT = """
{%- if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}
{%- for message in messages %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
    {%- endif %}
    {{- message['content'] }}
{%- endfor %}"""

TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Looks <outside>",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
CALL = {
    "id": "c1",
    "type": "function",
    "function": {"name": "weather", "arguments": '{"b": 1, "a": 2}'},
}
USER, ANSWER = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}


def rendered(source: str, messages: Sequence[Any] = (USER,), **context: Any) -> str:
    return ChatTemplate({"default": source}, {}).render(
        read_messages(messages), read_tools(context.pop("tools", ())), variables=context
    )


def seen(messages: Sequence[Any]) -> list[dict[str, Any]]:
    """The messages as a template sees them."""
    return json.loads(rendered("{{ messages | tojson }}", messages))


def refusal(
    source: str, messages: Sequence[Any], variables: Mapping[str, object] | None = None
) -> TemplateError:
    with pytest.raises(TemplateError) as caught:
        ChatTemplate({"default": source}, {}).render(read_messages(messages), variables=variables)
    return caught.value


# What a template may use.


def test_a_conversation_is_rendered_with_and_without_the_opening_of_a_reply() -> None:
    template = ChatTemplate({"default": PLAIN}, {})
    messages = read_messages([USER, ANSWER])
    closed = "<|user|>hi<|end|><|assistant|>hello<|end|>"
    assert template.render(messages, add_generation_prompt=False) == closed
    assert template.render(messages) == closed + "<|assistant|>"


def test_lines_with_only_a_block_leave_nothing_behind() -> None:
    assert rendered("a\n    {% if true %}\nb\n    {% endif %}\nc") == "a\nb\nc"


def test_tojson_escapes_neither_html_nor_unicode_and_keeps_key_order() -> None:
    value = {"z": "<é & 'ü'>", "a": [1, None, True]}
    assert rendered("{{ v | tojson }}", v=value) == """{"z": "<é & 'ü'>", "a": [1, null, true]}"""


def test_tojson_takes_the_arguments_that_templates_pass() -> None:
    value = {"b": 1, "a": "é"}
    assert rendered("{{ v | tojson(indent=2) }}", v=value) == '{\n  "b": 1,\n  "a": "é"\n}'
    assert rendered("{{ v | tojson(separators=(',', ':')) }}", v=value) == '{"b":1,"a":"é"}'
    assert rendered("{{ v | tojson(sort_keys=true, ensure_ascii=true) }}", v=value) == (
        '{"a": "\\u00e9", "b": 1}'
    )


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.text(), lambda x: st.dictionaries(st.text(), x), max_leaves=8
)


@given(JSON_VALUES)
def test_tojson_can_be_read_back(value: object) -> None:
    assert json.loads(rendered("{{ v | tojson }}", v=value)) == value


def test_loops_can_be_left_and_continued() -> None:
    source = "{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}{% endif %}{{ i }}{% endfor %}"
    assert rendered(source) == "023"


def test_a_generation_block_is_rendered_and_keeps_its_names_inside() -> None:
    source = "{% set x = 1 %}{% generation %}{% set x = 2 %}[{{ x }}]{% endgeneration %}{{ x }}"
    assert rendered(source) == "[2]1"


def test_bug_42_the_date_comes_from_the_clock_that_was_given() -> None:
    source = "{{ strftime_now('%Y-%m-%d') }} {{ strftime_now('%d %b %Y, %H:%M') }}"
    template = ChatTemplate({"default": source}, {}, clock=lambda: datetime(2024, 7, 26, 9, 5))
    assert template.render(read_messages("hi")) == "2024-07-26 26 Jul 2024, 09:05"


def test_special_tokens_and_further_variables_are_at_hand() -> None:
    template = ChatTemplate(
        {"default": "{{ bos_token }}{{ enable_thinking }}{{ eos_token }}"},
        {"bos_token": "<s>", "eos_token": "</s>"},
    )
    text = template.render(read_messages("hi"), variables={"enable_thinking": False})
    assert text == "<s>False</s>"
    assert template.variables == {"bos_token", "enable_thinking", "eos_token"}


def test_a_variable_may_not_stand_for_an_argument() -> None:
    with pytest.raises(RequestError, match="'messages' is not free"):
        ChatTemplate({"default": ""}, {}).render(read_messages("hi"), variables={"messages": []})


def test_tools_come_in_the_openai_form_and_are_none_when_there_are_none() -> None:
    assert json.loads(rendered("{{ tools | tojson }}", tools=[TOOL])) == [TOOL]
    assert rendered("{{ tools is none }} {{ documents is none }}") == "True True"


def test_the_template_named_tool_use_is_taken_when_there_are_tools() -> None:
    template = ChatTemplate({"default": "plain", "tool_use": "with tools"}, {})
    assert template.render(read_messages("hi")) == "plain"
    assert template.render(read_messages("hi"), read_tools([TOOL])) == "with tools"


# What a template sees of a message.


def test_empty_content_is_an_empty_text_and_no_null() -> None:
    assert (
        seen([USER, {"role": "assistant", "content": None, "tool_calls": [CALL]}])[1]["content"]
        == ""
    )
    assert seen([{"role": "user", "content": []}]) == [{"role": "user", "content": ""}]


def test_text_in_several_blocks_is_one_text() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert seen([{"role": "user", "content": parts}]) == [{"role": "user", "content": "ab"}]


def test_bug_43_a_template_that_reads_only_parts_gets_parts() -> None:
    source = """
        {%- for m in messages %}{% for part in m.content %}
            {%- if part.type == 'text' %}{{ m.role + ':' + part.text + ';' }}{% endif %}
        {%- endfor %}{% endfor %}"""
    assert rendered(source, [USER, ANSWER]) == "user:hi;assistant:hello;"
    assert rendered(source, [USER, {"role": "assistant", "content": ""}]) == "user:hi;"


def test_bug_40_arguments_given_as_json_text_are_a_mapping_in_their_own_order() -> None:
    source = "{% for m in messages %}{% for c in m.tool_calls %}{% for k, v in c.function.arguments | items %}{{ k }}={{ v }} {% endfor %}{% endfor %}{% endfor %}"
    assert rendered(source, [USER, {"role": "assistant", "tool_calls": [CALL]}]) == "b=1 a=2 "


def test_bug_40_no_arguments_are_an_empty_mapping() -> None:
    call = {"function": {"name": "now", "arguments": None}}
    assert seen([{"role": "assistant", "tool_calls": [call]}])[0]["tool_calls"] == [
        {"type": "function", "function": {"name": "now", "arguments": {}}}
    ]


@pytest.mark.parametrize("arguments", ["[1, 2]", "3", "not json", [1]])
def test_bug_40_arguments_that_are_no_mapping_are_the_requests_fault(arguments: object) -> None:
    call = {"function": {"name": "now", "arguments": arguments}}
    with pytest.raises(RequestError, match="arguments"):
        seen([{"role": "assistant", "tool_calls": [call]}])


def test_a_call_and_its_result_keep_their_id_and_the_result_learns_the_tools_name() -> None:
    called, result = seen(
        [
            {"role": "assistant", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
        ]
    )
    assert called["tool_calls"][0]["id"] == "c1"
    assert result == {"role": "tool", "content": "sunny", "name": "weather", "tool_call_id": "c1"}


def test_each_of_several_tool_results_is_a_turn() -> None:
    blocks = (ToolResult(text="1", name="a"), ToolResult(text="2"), Text(text="so?"))
    assert seen([Message(role="user", content=blocks)]) == [
        {"role": "tool", "content": "1", "name": "a"},
        {"role": "tool", "content": "2"},
        {"role": "user", "content": "so?"},
    ]


def test_reasoning_is_given_under_the_names_that_templates_use() -> None:
    blocks = (Reasoning(text="hm"), Text(text="yes"), ToolCall(name="now"))
    (message,) = seen([Message(role="assistant", content=blocks)])
    assert message["content"] == "yes"
    assert {message[name] for name in ("reasoning_content", "reasoning", "thinking")} == {"hm"}


def test_the_name_of_a_speaker_is_kept() -> None:
    assert seen([{"role": "user", "content": "hi", "name": "Ada"}])[0]["name"] == "Ada"


# Where and why a template fails.


def test_bug_43_a_refused_system_role_is_named_with_the_templates_own_words() -> None:
    error = refusal(STRICT, [{"role": "system", "content": "be brief"}, USER])
    assert (error.index, error.role, error.reason) == (0, "system", "System role not supported")
    assert "message 0 (role 'system'): System role not supported." in str(error)
    assert error.field == "messages[0]"
    assert error.hint is not None
    assert "first user message" in error.hint


def test_bug_43_the_second_of_two_user_turns_is_named() -> None:
    error = refusal(STRICT, [USER, ANSWER, USER, USER, ANSWER])
    assert (error.index, error.role) == (3, "user")
    assert error.reason == "Conversation roles must alternate user/assistant/user/assistant/..."
    assert error.hint == "Join the user messages 2 and 3 into one."


def test_bug_43_an_unknown_tool_role_is_named() -> None:
    source = "{% for m in messages %}{% if m.role not in ['user', 'assistant'] %}{{ raise_exception('Unknown role: ' + m.role) }}{% endif %}{% endfor %}"
    error = refusal(source, [USER, ANSWER, {"role": "tool", "content": "x"}, USER])
    assert (error.index, error.role, error.reason) == (2, "tool", "Unknown role: tool")


def test_the_index_counts_messages_and_not_turns() -> None:
    source = "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('late') }}{% endif %}{% endfor %}"
    results = Message(role="tool", content=(ToolResult(text="1"), ToolResult(text="2")))
    error = refusal(source, [USER, results, {"role": "system", "content": "x"}])
    assert (error.index, error.role) == (2, "system")


def test_an_undefined_name_says_what_and_at_which_line() -> None:
    source = "{% for m in messages %}\n{% if m.role == 'assistant' %}\n{{ m.plan.steps }}\n{% endif %}{% endfor %}"
    error = refusal(source, [USER, ANSWER])
    assert (error.index, error.role) == (1, "assistant")
    assert error.reason == "'dict object' has no attribute 'plan'"
    assert "in its line 3" in str(error)


def test_a_failure_that_is_no_messages_doing_names_none() -> None:
    opening = "{% if add_generation_prompt %}{{ raise_exception('no opening') }}{% endif %}"
    for source in (opening, "{{ settings.x }}", "{{ 1 + 'a' }}"):
        error = refusal(source, [USER, ANSWER])
        assert (error.index, error.role, error.field) == (None, None, None)
        assert error.reason


def test_what_leaves_the_sandbox_is_refused() -> None:
    error = refusal("{{ messages.__class__.__mro__ }}", [USER])
    assert error.reason is not None
    assert "unsafe" in error.reason
    assert "sandbox" in (error.hint or "")


def test_a_template_cannot_change_the_messages() -> None:
    assert "unsafe" in str(refusal("{{ messages.append(1) }}", [USER]))


def test_a_range_without_end_is_refused() -> None:
    assert "Range too big" in str(refusal("{% for i in range(10**9) %}{% endfor %}", [USER]))


def test_bug_43_a_checkpoint_without_template_says_what_to_do() -> None:
    with pytest.raises(TemplateError, match="has no chat template") as caught:
        ChatTemplate({}, {}).render(read_messages("hi"))
    assert "chat_template.jinja" in str(caught.value)
    with pytest.raises(TemplateError, match="named 'default', only: rag"):
        ChatTemplate({"rag": "x"}, {}).render(read_messages("hi"))


def test_a_template_that_is_no_jinja_names_the_line() -> None:
    error = refusal("a\n{% for m in messages %}\n{{ m.role }}\n{% endfr %}", [USER])
    assert "line 4" in str(error)
    assert "endfr" in (error.reason or "")
    assert error.index is None
    assert "unheard" in str(refusal("{{ 1 | unheard }}", [USER]))


# Published templates, when they are there.

PUBLISHED = sorted((Path(__file__).parents[4] / "shared" / "templates").glob("*.jinja"))


@pytest.mark.skipif(not PUBLISHED, reason="no published templates beside the repository")
def test_published_templates_render_a_plain_conversation_and_one_with_tools() -> None:
    plain = read_messages([USER, ANSWER, {"role": "user", "content": "bye"}])
    called = read_messages(
        [
            {"role": "system", "content": "brief"},
            USER,
            {"role": "assistant", "reasoning_content": "hm", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
        ]
    )
    for file in PUBLISHED:
        template = ChatTemplate({"default": file.read_text(encoding="utf-8")}, {"bos_token": "<s>"})
        text = template.render(plain)
        assert all(word in text for word in ("hi", "hello", "bye")), file.name
        text = template.render(called, read_tools([TOOL]))
        assert all(word in text for word in ("brief", "hi", "sunny")), file.name


@pytest.mark.parametrize("bad", [0, 1, 700, 998, 999])
def test_in_a_long_conversation_the_failing_message_is_found_in_few_attempts(bad: int) -> None:
    source = """
    {%- for message in messages %}
        {%- if 'bad' in message.content %}{{ raise_exception('Bad') }}{% endif %}
    {%- endfor %}"""
    messages = [{"role": "user", "content": "bad" if i == bad else "x"} for i in range(1000)]
    with pytest.raises(TemplateError) as caught:
        rendered(source, messages)
    assert caught.value.index == bad


def test_in_a_long_conversation_too_a_failure_may_be_no_messages_doing() -> None:
    opening = "{% if add_generation_prompt %}{{ raise_exception('No') }}{% endif %}"
    for source in (opening, "{{ raise_exception('No') }}"):
        with pytest.raises(TemplateError) as caught:
            rendered(source, [USER, ANSWER] * 200)
        assert caught.value.index is None
