"""Whether a reply may, must or must not be a call."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pytest
from pydantic import Field

from phyla.errors import RequestError
from phyla.messages import Tool
from phyla.testing import ScriptedEngine

if TYPE_CHECKING:
    from collections.abc import Iterator

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 272,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 2048,
}
TEMPLATE = (
    "{# <tool_call> #}{% for tool in tools or [] %}{{ tool.function | tojson }}\n{% endfor %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "<|im_start|>assistant\n{% if enable_thinking is defined and enable_thinking %}<think>\n"
    "{% endif %}"
)
WEATHER = Tool(name="weather", parameters={"type": "object", "properties": {"city": {}}})
CLOCK = Tool(name="clock")
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'
ENDING = "\n</think>\n\n"


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptedEngine]:
    """A model that calls as Hermes does, and thinks when it is told to."""
    folder = tmp_path_factory.mktemp("choice") / "tiny"
    llama = importlib.import_module("phyla_families.llama.plugin").LLAMA
    dialect = importlib.import_module("phyla_families.qwen3.dialect").dialect
    with ScriptedEngine(
        folder, CONFIG, replace(llama, dialect=dialect), chat_template=TEMPLATE
    ) as scripted:
        yield scripted


@pytest.fixture(scope="module")
def without_calls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptedEngine]:
    """A model that has no way to call tools."""
    llama = importlib.import_module("phyla_families.llama.plugin").LLAMA
    with ScriptedEngine(tmp_path_factory.mktemp("choice") / "tiny", CONFIG, llama) as scripted:
        yield scripted


def test_by_default_the_model_decides(scripted: ScriptedEngine) -> None:
    tools = [WEATHER, CLOCK]
    assert scripted.engine.encode("Hi", tools=tools) == scripted.engine.encode(
        "Hi", tools=tools, tool_choice="auto"
    )
    assert scripted.chat(CALL, tools=tools).finish_reason == "tool_calls"
    assert scripted.chat("No.", tools=tools).text == "No."


def test_none_is_as_if_there_were_no_tools(scripted: ScriptedEngine) -> None:
    prompt = scripted.engine.encode("Hi", tools=[WEATHER], tool_choice="none")
    assert prompt == scripted.engine.encode("Hi")
    reply = scripted.chat(CALL, tools=[WEATHER], tool_choice="none")
    assert (reply.text, reply.tool_calls, reply.finish_reason) == (CALL, (), "stop")


def test_none_needs_no_tools(without_calls: ScriptedEngine) -> None:
    assert without_calls.chat("No.", tool_choice="none").text == "No."


def test_required_opens_a_call_and_leaves_its_name_to_the_model(scripted: ScriptedEngine) -> None:
    opening = '<tool_call>\n{"name": "'
    plain = scripted.engine.encode("Hi", tools=[WEATHER, CLOCK])
    prompt = scripted.engine.encode("Hi", tools=[WEATHER, CLOCK], tool_choice="required")
    assert prompt.text == plain.text + opening
    assert list(prompt.ids) == scripted.ids(prompt.text)
    reply = scripted.chat('clock", "arguments": {}}\n</tool_call>', prompt)
    assert [(call.name, call.arguments) for call in reply.tool_calls] == [("clock", {})]
    assert reply.finish_reason == "tool_calls"
    assert reply.usage.completion_tokens == len(reply.tokens)


def test_required_names_the_tool_if_there_is_only_one(scripted: ScriptedEngine) -> None:
    prompt = scripted.engine.encode("Hi", tools=[CLOCK], tool_choice="required")
    assert prompt.text.endswith('<tool_call>\n{"name": "clock", "arguments":')


def test_a_name_opens_a_call_of_that_tool(scripted: ScriptedEngine) -> None:
    prompt = scripted.engine.encode("Hi", tools=[WEATHER, CLOCK], tool_choice="weather")
    assert prompt.text.endswith('<tool_call>\n{"name": "weather", "arguments":')
    reply = scripted.chat(' {"city": "Rome"}}\n</tool_call>', prompt)
    assert [(call.name, call.arguments) for call in reply.tool_calls] == [
        ("weather", {"city": "Rome"})
    ]


def test_more_calls_and_words_may_follow_the_one_that_must_be(scripted: ScriptedEngine) -> None:
    reply = scripted.chat(
        f' {{"city": "Rome"}}}}\n</tool_call>\n{CALL}\nDone.',
        tools=[WEATHER],
        tool_choice="required",
    )
    assert [call.arguments["city"] for call in reply.tool_calls] == ["Rome", "Paris"]
    assert len({call.id for call in reply.tool_calls}) == 2
    assert reply.text == "Done."


def test_a_call_that_must_be_and_is_cut_is_incomplete(scripted: ScriptedEngine) -> None:
    reply = scripted.chat(
        ' {"city": "Rome"}}',
        tools=[WEATHER],
        tool_choice="weather",
        options={"max_tokens": 12},
    )
    (error,) = reply.tool_call_errors
    assert error.raw == '<tool_call>\n{"name": "weather", "arguments": {"city": "R'
    assert error.incomplete
    assert reply.finish_reason == "length"


def test_what_is_said_instead_of_the_call_is_not_lost(scripted: ScriptedEngine) -> None:
    reply = scripted.chat(" I will not.", tools=[WEATHER], tool_choice="weather")
    assert reply.tool_calls == ()
    shown = reply.text + "".join(error.raw for error in reply.tool_call_errors)
    assert "I will not." in shown


def test_a_reply_that_must_be_a_call_does_not_think_first(scripted: ScriptedEngine) -> None:
    thinking = scripted.engine.encode("Hi", tools=[WEATHER], thinking=True)
    assert thinking.opens_reasoning
    prompt = scripted.engine.encode("Hi", tools=[WEATHER], thinking=True, tool_choice="required")
    opening = '<tool_call>\n{"name": "weather", "arguments":'
    assert prompt.text == thinking.text + ENDING + opening
    assert not prompt.opens_reasoning
    reply = scripted.chat(' {"city": "Rome"}}\n</tool_call>', prompt)
    assert (reply.reasoning, reply.usage.reasoning_tokens) == ("", 0)
    assert reply.finish_reason == "tool_calls"


@pytest.mark.parametrize(
    ("choice", "tools", "says"),
    [
        ("nothing", [WEATHER, CLOCK], "no such tool"),
        ("weather", [], "no such tool"),
        ("required", [], "no tools"),
        ("required", None, "no tools"),
    ],
)
def test_a_choice_that_cannot_be_is_refused(
    choice: str, tools: list[Tool] | None, says: str, scripted: ScriptedEngine
) -> None:
    with pytest.raises(RequestError, match=says) as caught:
        scripted.engine.stream("Hi", tools=tools, tool_choice=choice)
    assert (caught.value.field, caught.value.found) == ("tool_choice", choice)
    assert caught.value.hint


@pytest.mark.parametrize("choice", ["required", "clock"])
def test_a_model_that_calls_no_tools_cannot_be_made_to(
    choice: str, without_calls: ScriptedEngine
) -> None:
    with pytest.raises(RequestError, match="no way to call tools") as caught:
        without_calls.engine.encode("Hi", tools=[CLOCK], tool_choice=choice)
    assert caught.value.field == "tool_choice"


# Python functions as tools.


def forecast(
    city: str, days: Annotated[int, Field(description="How many days ahead")] = 1,
    unit: Literal["C", "F"] = "C",
) -> str:  # fmt: skip
    """Tell the weather.

    Args:
        city: Where.
    """
    return f"{city} {days} {unit}"


def test_a_python_function_is_offered_by_its_types_and_its_docstring(
    scripted: ScriptedEngine,
) -> None:
    prompt = scripted.engine.encode("Hi", tools=[forecast])
    assert prompt.tools is not None
    (tool,) = prompt.tools
    assert (tool.name, tool.description) == ("forecast", "Tell the weather.")
    properties = tool.parameters["properties"]
    assert properties["city"] == {"type": "string", "description": "Where."}
    assert properties["days"]["description"] == "How many days ahead"
    assert tool.parameters["required"] == ["city"]
    assert '"name": "forecast"' in prompt.text


def test_a_python_function_can_be_called_with_what_the_model_says(
    scripted: ScriptedEngine,
) -> None:
    said = '<tool_call>\n{"name": "forecast", "arguments": {"city": "Oslo", "days": 2}}\n'
    reply = scripted.chat(f"{said}</tool_call>", tools=[forecast])
    (call,) = reply.tool_calls
    assert forecast(**call.arguments) == "Oslo 2 C"
    reply = scripted.chat(
        ' {"city": "Oslo"}}\n</tool_call>', tools=[forecast], tool_choice="forecast"
    )
    (call,) = reply.tool_calls
    assert forecast(**call.arguments) == "Oslo 1 C"


def test_a_function_that_cannot_be_described_is_refused(scripted: ScriptedEngine) -> None:
    def vague(x) -> None:  # type: ignore[no-untyped-def]
        """Do something."""

    with pytest.raises(RequestError):
        scripted.engine.chat("Hi", tools=[vague])
