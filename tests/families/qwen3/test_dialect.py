"""Qwen3's replies, in Hermes' format and in its own, are understood in every cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from phyla.errors import RequestError
from phyla.messages import Tool
from phyla.testing.replies import Example, check
from phyla_families.qwen3.dialect import dialect

if TYPE_CHECKING:
    from collections.abc import Callable

    from phyla.checkpoint import Checkpoint

HERMES_TEMPLATE = '<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}'
XML_TEMPLATE = "<tool_call>\n<function=example> {{ enable_thinking }} <think>"

WEATHER = Tool(
    name="weather",
    parameters={
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    },
)
PARIS = ("weather", {"city": "Paris"})


def hermes(arguments: str = '{"city": "Paris"}', name: str = "weather") -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def xml(body: str = "<parameter=city>\nParis\n</parameter>\n", name: str = "weather") -> str:
    return f"<tool_call>\n<function={name}>\n{body}</function>\n</tool_call>"


HERMES = {
    "an answer": Example(raw="Paris.", text="Paris."),
    "the model thinks by itself": Example(
        raw="<think>\nIt is Paris.\n</think>\n\nParis.", text="Paris.", reasoning="It is Paris."
    ),
    "the user said /no_think": Example(raw="<think>\n\n</think>\n\nParis.", text="Paris."),
    "the prompt opened it": Example(
        raw="hm\n</think>\n\nParis.", text="Paris.", reasoning="hm", in_reasoning=True
    ),
    "it was cut off while it thought": Example(raw="<think>\nhm, ", reasoning="hm, "),
    "a call": Example(raw=hermes(), calls=(PARIS,)),
    "thinks, then calls": Example(
        raw=f"<think>\nhm\n</think>\n\n{hermes()}", reasoning="hm", calls=(PARIS,)
    ),
    "text, then two calls": Example(
        raw=f"I look.\n{hermes()}\n{hermes('{}', 'now')}", text="I look.", calls=(PARIS, ("now", {}))
    ),
    "the end tag inside a string": Example(
        raw=hermes(r'{"a": "\"hi\" </tool_call> ok"}'),
        calls=(("weather", {"a": '"hi" </tool_call> ok'}),),
    ),
    "arguments as text": Example(
        raw=hermes(r'"{\"city\": \"Paris\"}"'), calls=(PARIS,)
    ),
    "no end tag": Example(raw=hermes().removesuffix("\n</tool_call>"), calls=(PARIS,)),
    "calls are text without tools": Example(raw=hermes(), text=hermes(), tools=None),
    "nothing but a line break after a call": Example(raw=hermes() + "\n", calls=(PARIS,)),
}  # fmt: skip

XML = {
    "an answer": Example(raw="Paris.", text="Paris."),
    "the prompt opened reasoning": Example(
        raw="hm\n</think>\n\nParis.", text="Paris.", reasoning="hm", in_reasoning=True
    ),
    "it never stops to think": Example(raw="hm\nhm", reasoning="hm\nhm", in_reasoning=True),
    "a call": Example(raw=xml(), calls=(PARIS,)),
    "blanks between reasoning and a call": Example(
        raw=f"hm\n</think>\n \n{xml()}", reasoning="hm", calls=(PARIS,), in_reasoning=True
    ),
    "types come from the schema": Example(
        raw=xml("<parameter=days>\n7\n</parameter>\n"),
        calls=(("weather", {"days": 7}),),
        tools=(WEATHER,),
    ),
    "no parameters": Example(raw=xml("", "now"), calls=(("now", {}),)),
    "text, then a call": Example(raw=f"I look.\n\n{xml()}", text="I look.", calls=(PARIS,)),
    "two calls": Example(raw=f"{xml()}\n{xml('', 'now')}", calls=(PARIS, ("now", {}))),
    "no wrapper around a tool that was offered": Example(
        raw=xml().removeprefix("<tool_call>\n"), calls=(PARIS,), tools=(WEATHER,)
    ),
    "a text that looks like a call": Example(
        raw="#include <functional>\n<function=x", text="#include <functional>\n<function=x"
    ),
    "the end tag of a value inside it": Example(
        raw=xml("<parameter=city>\na </parameter> b\n</parameter>\n"),
        calls=(("weather", {"city": "a </parameter> b"}),),
    ),
    "calls are text without tools": Example(raw=xml(), text=xml(), tools=None),
}  # fmt: skip


@pytest.mark.parametrize("name", HERMES)
def test_hermes_examples(name: str, checkpoint_of: Callable[..., Checkpoint]) -> None:
    check(dialect(checkpoint_of("qwen3", chat_template=HERMES_TEMPLATE)), HERMES[name])


@pytest.mark.parametrize("name", XML)
def test_xml_examples(name: str, checkpoint_of: Callable[..., Checkpoint]) -> None:
    check(dialect(checkpoint_of("qwen3", chat_template=XML_TEMPLATE)), XML[name])


@pytest.mark.parametrize("template", [HERMES_TEMPLATE, XML_TEMPLATE])
def test_bug_20_tags_in_the_answer(template: str, checkpoint_of: Callable[..., Checkpoint]) -> None:
    raw = "<think>plan</think>Use `<think>x</think>` tags"
    found = dialect(checkpoint_of("qwen3", chat_template=template))
    check(found, Example(raw=raw, text="Use `<think>x</think>` tags", reasoning="plan"))


def test_bug_21_a_call_inside_reasoning(checkpoint_of: Callable[..., Checkpoint]) -> None:
    found = dialect(checkpoint_of("qwen3", chat_template=XML_TEMPLATE))
    raw = f"<think>\nread it\n{xml()}\n</think>"
    check(found, Example(raw=raw, reasoning="read it", calls=(PARIS,)))


@pytest.mark.parametrize("template", [HERMES_TEMPLATE, XML_TEMPLATE])
def test_bug_23_a_tag_as_prose(template: str, checkpoint_of: Callable[..., Checkpoint]) -> None:
    raw = "Write <tool_call> before the JSON. Done."
    check(dialect(checkpoint_of("qwen3", chat_template=template)), Example(raw=raw, text=raw))


def test_bug_29_a_value_that_is_not_of_its_type(checkpoint_of: Callable[..., Checkpoint]) -> None:
    found = dialect(checkpoint_of("qwen3", chat_template=XML_TEMPLATE))
    for value in ("2026-01-15", "inf"):
        raw = xml(f"<parameter=days>{value}</parameter>")
        check(found, Example(raw=raw, calls=(("weather", {"days": value}),), tools=(WEATHER,)))


def test_bug_31_two_functions_in_one_wrapper(checkpoint_of: Callable[..., Checkpoint]) -> None:
    found = dialect(checkpoint_of("qwen3", chat_template=XML_TEMPLATE))
    raw = "<tool_call>\n<function=a>\n</function>\n<function=b>\n</function>\n</tool_call>"
    check(found, Example(raw=raw, calls=(("a", {}), ("b", {}))))


def test_bug_32_an_escape_that_json_does_not_know(
    checkpoint_of: Callable[..., Checkpoint],
) -> None:
    found = dialect(checkpoint_of("qwen3", chat_template=HERMES_TEMPLATE))
    raw = '<tool_call>\n{"name":"f","arguments":{"re":"\\d+"}}\n</tool_call>'
    check(found, Example(raw=raw, calls=(("f", {"re": r"\d+"}),)))


def test_bug_33_a_call_that_is_cut_off(checkpoint_of: Callable[..., Checkpoint]) -> None:
    for template, raw in (
        (HERMES_TEMPLATE, '<tool_call>\n{"name": "f", "arguments": {"q": "abc'),
        (XML_TEMPLATE, "<tool_call>\n<function=f>\n<parameter=s>\nabc"),
    ):
        found = dialect(checkpoint_of("qwen3", chat_template=template))
        check(found, Example(raw=raw, errors=(raw,), cut=True))


def test_efforts_are_those_of_the_template(checkpoint_of: Callable[..., Checkpoint]) -> None:
    found = dialect(checkpoint_of("qwen3", chat_template=XML_TEMPLATE + "{{ reasoning_effort }}"))
    assert found.thinking_variables("low") == {"enable_thinking": True, "reasoning_effort": "low"}
    with pytest.raises(RequestError, match=r"'high'.*'xhigh'") as caught:
        found.thinking_setting("high")
    assert (caught.value.field, caught.value.found) == ("thinking", "high")


def test_a_model_without_a_switch_refuses(checkpoint_of: Callable[..., Checkpoint]) -> None:
    answers = dialect(checkpoint_of("qwen3", chat_template=HERMES_TEMPLATE))
    assert answers.thinking_variables(False) == answers.thinking_variables(None) == {}
    with pytest.raises(RequestError, match="cannot be turned on"):
        answers.thinking_variables(True)
    thinks = dialect(checkpoint_of("qwen3", chat_template=HERMES_TEMPLATE + "<think>"))
    assert thinks.thinking_variables(True) == {}
    with pytest.raises(RequestError, match="cannot be turned off"):
        thinks.thinking_variables(False)
