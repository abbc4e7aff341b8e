"""NemotronH's replies, of Nano v2 and of Nemotron 3, are understood in every cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from phyla.testing.replies import Example, check
from phyla_families.nemotron_h.dialect import dialect

if TYPE_CHECKING:
    from collections.abc import Callable

    from phyla.checkpoint import Checkpoint

V2_TEMPLATE = "<TOOLCALL> <think>"
V3_TEMPLATE = "<tool_call>\n<function=example> {{ enable_thinking }} <think>"

A, B = '{"name": "a", "arguments": {"x": 1}}', '{"name": "b", "arguments": {"y": [1, null]}}'
CALL_A, CALL_B = ("a", {"x": 1}), ("b", {"y": [1, None]})


def xml(body: str = "<parameter=city>\nParis\n</parameter>\n", name: str = "weather") -> str:
    return f"<tool_call>\n<function={name}>\n{body}</function>\n</tool_call>\n"


PARIS = ("weather", {"city": "Paris"})

V2 = {
    "the prompt opened reasoning": Example(
        raw="hm\n</think>\n\nParis.\n", text="Paris.\n", reasoning="hm", in_reasoning=True
    ),
    "thinking is off": Example(raw="Paris.", text="Paris."),
    "it never stops to think": Example(raw="hm", reasoning="hm", in_reasoning=True),
    "a call": Example(raw=f"<TOOLCALL>[{A}]</TOOLCALL>\n", calls=(CALL_A,)),
    "two calls": Example(raw=f"<TOOLCALL>[{A}, {B}]</TOOLCALL>\n", calls=(CALL_A, CALL_B)),
    "thinks, then calls": Example(
        raw=f"I should.\n</think>\n\n<TOOLCALL>[{A}]</TOOLCALL>",
        reasoning="I should.",
        calls=(CALL_A,),
        in_reasoning=True,
    ),
    "marks inside a string": Example(
        raw='<TOOLCALL>[{"name": "w", "arguments": {"s": "<i>] </TOOLCALL>"}}]</TOOLCALL>',
        calls=(("w", {"s": "<i>] </TOOLCALL>"}),),
    ),
    "arguments as text": Example(
        raw=r'<TOOLCALL>[{"name": "a", "arguments": "{\"x\": 1}"}]</TOOLCALL>', calls=(CALL_A,)
    ),
    "no list": Example(raw=f"<TOOLCALL>{A}</TOOLCALL>", calls=(CALL_A,)),
    "no end": Example(raw=f"<TOOLCALL>[{A}]", calls=(CALL_A,)),
    "text, then a call": Example(
        raw=f"I look.\n<TOOLCALL>[{A}]</TOOLCALL>", text="I look.", calls=(CALL_A,)
    ),
    "calls are text without tools": Example(
        raw=f"<TOOLCALL>[{A}]</TOOLCALL>", text=f"<TOOLCALL>[{A}]</TOOLCALL>", tools=None
    ),
    "half a mark at the end": Example(raw="See <TOOL", text="See <TOOL"),
}  # fmt: skip

V3 = {
    "an answer": Example(raw="Paris.", text="Paris."),
    "the prompt opened reasoning": Example(
        raw="hm\n</think>\nParis.", text="Paris.", reasoning="hm", in_reasoning=True
    ),
    "no line break around the close": Example(
        raw="hm</think>Paris.", text="Paris.", reasoning="hm", in_reasoning=True
    ),
    "thinks, then calls": Example(
        raw=f"Need weather.\n</think>\n{xml()}",
        reasoning="Need weather.",
        calls=(PARIS,),
        in_reasoning=True,
    ),
    "a call": Example(raw=xml(), calls=(PARIS,)),
    "two calls": Example(raw=xml() + xml("", "now"), calls=(PARIS, ("now", {}))),
    "a call while it thinks": Example(
        raw=f"hm\n{xml()}", reasoning="hm", calls=(PARIS,), in_reasoning=True
    ),
    "code keeps its blank lines": Example(
        raw=xml('<parameter=c>\ndef f():\n    return "a<b"\n\nf()\n</parameter>\n'),
        calls=(("weather", {"c": 'def f():\n    return "a<b"\n\nf()'}),),
    ),
    "no parameters": Example(raw=xml("", "now"), calls=(("now", {}),)),
    "JSON inside the function": Example(
        raw='<tool_call>\n<function=f>{"a": 1}</function>\n</tool_call>', calls=(("f", {"a": 1}),)
    ),
    "text after a call": Example(raw=f"A\n{xml()}B", text="A\nB", calls=(PARIS,)),
    "an orphaned close": Example(raw="\n</think>\nParis.", text="Paris."),
    "calls are text without tools": Example(raw=xml(), text=xml(), tools=None),
}  # fmt: skip


@pytest.mark.parametrize("name", V2)
def test_examples_of_v2(name: str, checkpoint_of: Callable[..., Checkpoint]) -> None:
    check(dialect(checkpoint_of("nemotron_h", chat_template=V2_TEMPLATE)), V2[name])


@pytest.mark.parametrize("name", V3)
def test_examples_of_v3(name: str, checkpoint_of: Callable[..., Checkpoint]) -> None:
    check(dialect(checkpoint_of("nemotron_h", chat_template=V3_TEMPLATE)), V3[name])


def test_bug_20_tags_in_the_answer(checkpoint_of: Callable[..., Checkpoint]) -> None:
    raw = "plan</think>Use `<think>x</think>` tags"
    for template in (V2_TEMPLATE, V3_TEMPLATE):
        found = dialect(checkpoint_of("nemotron_h", chat_template=template))
        text = "Use `<think>x</think>` tags"
        check(found, Example(raw=raw, text=text, reasoning="plan", in_reasoning=True))


def test_bug_21_a_call_inside_reasoning(checkpoint_of: Callable[..., Checkpoint]) -> None:
    found = dialect(checkpoint_of("nemotron_h", chat_template=V3_TEMPLATE))
    raw = f"\nread it\n{xml()}</think>"
    check(found, Example(raw=raw, reasoning="read it", calls=(PARIS,), in_reasoning=True))


def test_bug_23_a_mark_as_prose(checkpoint_of: Callable[..., Checkpoint]) -> None:
    for template, mark in ((V2_TEMPLATE, "<TOOLCALL>"), (V3_TEMPLATE, "<tool_call>")):
        raw = f"Write {mark} before the JSON. Done."
        found = dialect(checkpoint_of("nemotron_h", chat_template=template))
        check(found, Example(raw=raw, text=raw))


def test_bug_33_a_call_that_is_cut_off(checkpoint_of: Callable[..., Checkpoint]) -> None:
    found = dialect(checkpoint_of("nemotron_h", chat_template=V2_TEMPLATE))
    cut = '{"name": "b", "arg'
    check(
        found,
        Example(raw=f"<TOOLCALL>[{A}, {cut}", calls=(CALL_A,), errors=(cut,), cut=True),
    )
    found = dialect(checkpoint_of("nemotron_h", chat_template=V3_TEMPLATE))
    raw = "<tool_call>\n<function=f>\n<parameter=a>\n1\n"
    check(found, Example(raw=raw, errors=(raw,), cut=True))


def test_v2_is_told_to_think_in_words(checkpoint_of: Callable[..., Checkpoint]) -> None:
    found = dialect(checkpoint_of("nemotron_h", chat_template=V2_TEMPLATE))
    assert found.thinking_setting(False).instruction == "/no_think"
    assert found.thinking_setting(True).instruction == "/think"
    assert found.thinking_variables(False) == {}
    assert found.opens_reasoning("<SPECIAL_11>User\nhi\n<SPECIAL_11>Assistant\n<think>\n")
    assert not found.opens_reasoning("<SPECIAL_11>User\n<think>?\n<SPECIAL_11>Assistant\n")


def test_a_base_model_has_no_calls_and_no_reasoning(
    checkpoint_of: Callable[..., Checkpoint],
) -> None:
    found = dialect(checkpoint_of("nemotron_h"))
    assert (found.name, found.reasoning, found.tools) == ("nemotron-h", None, None)
