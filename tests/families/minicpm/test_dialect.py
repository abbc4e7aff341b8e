"""MiniCPM's replies, in each of its releases' formats, are understood in every cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from phyla.messages import Tool
from phyla.testing.replies import Example, check
from phyla_families.minicpm.dialect import dialect

if TYPE_CHECKING:
    from collections.abc import Callable

    from phyla.checkpoint import Checkpoint

TEMPLATES = {
    "minicpm5": "<function name= <param name= {{ enable_thinking }} <think>",
    "minicpm3": "<|thought_start|> <|tool_call_start|> tool_calls",
    "minicpm-hermes": '<tool_call>\n{"name": <think> {{ enable_thinking }}',
    "minicpm-xml": "<tool_call>\n<function=example> <think>",
    "minicpm": "<|im_start|>",
}

CITY = Tool(
    name="w",
    parameters={
        "type": "object",
        "properties": {"city": {"type": "string"}, "n": {"type": "integer"}},
    },
)
TOOLS = (CITY, Tool(name="pwd"))
PARIS = ("w", {"city": "Paris"})
TAGS = '<function name="w"><param name="city">Paris</param></function>'
PWD = '<function name="pwd"></function>'
START, END = "<|tool_call_start|>", "<|tool_call_end|>"
THOUGHT = "<|thought_start|>\nplan\n<|thought_end|>\n"


def block(body: str) -> str:
    return f"{START}\n```python\n{body}\n```\n{END}\n"


MINICPM5 = {
    "an answer": Example(raw="Paris.", text="Paris."),
    "the model thinks by itself": Example(
        raw="<think>\nhm\n</think>\n\nParis.", text="Paris.", reasoning="hm"
    ),
    "the prompt opened reasoning": Example(
        raw="hm\n</think>\n\nParis.", text="Paris.", reasoning="hm", in_reasoning=True
    ),
    "a call": Example(raw=TAGS, calls=(PARIS,), tools=TOOLS),
    "two calls and text": Example(
        raw=f"{TAGS}\n{PWD}\nDone.", text="Done.", calls=(PARIS, ("pwd", {})), tools=TOOLS
    ),
    "two calls with nothing between": Example(
        raw=TAGS + PWD, calls=(PARIS, ("pwd", {})), tools=TOOLS
    ),
    "thinks, then calls": Example(
        raw=f"<think>\nhm\n</think>\n\n{TAGS}", reasoning="hm", calls=(PARIS,), tools=TOOLS
    ),
    "a call while it thinks": Example(
        raw=f"<think>\nhm\n{TAGS}", reasoning="hm", calls=(PARIS,), tools=TOOLS
    ),
    "tags inside CDATA": Example(
        raw='<function name="w"><param name="city"><![CDATA[a</param></function>]]></param>'
        "</function>",
        calls=(("w", {"city": "a</param></function>"}),),
        tools=TOOLS,
    ),
    "a typed value": Example(
        raw='<function name="w"><param name="n">3</param></function>',
        calls=(("w", {"n": 3}),),
        tools=TOOLS,
    ),
    "single quotes": Example(
        raw="<function name='pwd'></function>", calls=(("pwd", {}),), tools=TOOLS
    ),
    "a tool that nobody offered": Example(
        raw='Use <function name="x"> here.', text='Use <function name="x"> here.', tools=TOOLS
    ),
    "calls are text without tools": Example(raw=TAGS, text=TAGS, tools=None),
}  # fmt: skip

MINICPM3 = {
    "an answer": Example(raw="Paris.", text="Paris."),
    "a thought, then an answer": Example(raw=f"{THOUGHT}Paris.", text="Paris.", reasoning="plan"),
    "a thought that never ends": Example(raw="<|thought_start|>\nhm", reasoning="hm"),
    "a call": Example(raw=block('w(city="Paris")'), calls=(PARIS,)),
    "a thought, a call, text": Example(
        raw=THOUGHT + block('w(city="Paris")') + "Done.",
        text="Done.",
        reasoning="plan",
        calls=(PARIS,),
    ),
    "two lines": Example(raw=block('w(city="Paris")\npwd()'), calls=(PARIS, ("pwd", {}))),
    "nested values": Example(
        raw=block("f(l=[1, {\"k\": None}], s='a, \"b\" ]')"),
        calls=(("f", {"l": [1, {"k": None}], "s": 'a, "b" ]'}),),
    ),
    "JSON's words": Example(
        raw=block("f(flag=true, z=null, t=True)"),
        calls=(("f", {"flag": True, "z": None, "t": True}),),
    ),
    "an escape": Example(raw=block(r'f(t="a\nb")'), calls=(("f", {"t": "a\nb"}),)),
    "no fence": Example(raw=f'{START}\nw(city="Paris")\n{END}', calls=(PARIS,)),
    "a call while it thinks": Example(
        raw="<|thought_start|>\nhm\n" + block('w(city="Paris")'), reasoning="hm", calls=(PARIS,)
    ),
    "half a marker at the end": Example(raw="See <|tool_call", text="See <|tool_call"),
}  # fmt: skip

HERMES_CALL = '<tool_call>\n{"name": "w", "arguments": {"city": "Paris"}}\n</tool_call>'
XML_CALL = (
    "<tool_call>\n<function=w>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>"
)


def _vision(call: str) -> dict[str, Example]:
    return {
        "an answer": Example(raw="A cat.", text="A cat."),
        "no thought": Example(raw="<think>\n\n</think>\n\nA cat.", text="A cat."),
        "a thought": Example(raw="<think>\nhm\n</think>\n\nCat.", text="Cat.", reasoning="hm"),
        "the prompt opened it": Example(
            raw="hm\n</think>\n\nCat.", text="Cat.", reasoning="hm", in_reasoning=True
        ),
        "a call": Example(raw=call, calls=(PARIS,)),
        "two calls": Example(raw=f"{call}\n{call}", calls=(PARIS, PARIS)),
        "text and a call": Example(raw=f"I look.\n{call}", text="I look.", calls=(PARIS,)),
        "a thought and a call": Example(
            raw=f"<think>\nhm\n</think>\n\n{call}", reasoning="hm", calls=(PARIS,)
        ),
        "a call while it thinks": Example(
            raw=f"<think>\nhm\n{call}\n</think>", reasoning="hm", calls=(PARIS,)
        ),
        "text after a call": Example(raw=f"{call}\nDone.", text="Done.", calls=(PARIS,)),
        "a stop text": Example(raw="A cat.\nUser: x", text="A cat.", stop="\nUser:", stops=("\nUser:",)),
        "calls are text without tools": Example(raw=call, text=call, tools=None),
    }  # fmt: skip


CASES = [
    *(("minicpm5", example) for example in MINICPM5.values()),
    *(("minicpm3", example) for example in MINICPM3.values()),
    *(("minicpm-hermes", example) for example in _vision(HERMES_CALL).values()),
    *(("minicpm-xml", example) for example in _vision(XML_CALL).values()),
]


@pytest.mark.parametrize(("name", "example"), CASES, ids=lambda value: getattr(value, "raw", value))
def test_examples(name: str, example: Example, checkpoint_of: Callable[..., Checkpoint]) -> None:
    found = dialect(checkpoint_of("minicpm", chat_template=TEMPLATES[name]))
    assert found.name == name
    check(found, example)


def test_bug_20_tags_in_the_answer(checkpoint_of: Callable[..., Checkpoint]) -> None:
    found = dialect(checkpoint_of("minicpm", chat_template=TEMPLATES["minicpm5"]))
    raw = "<think>plan</think>Use `<think>x</think>` tags"
    check(found, Example(raw=raw, text="Use `<think>x</think>` tags", reasoning="plan"))


def test_bug_23_a_mark_as_prose(checkpoint_of: Callable[..., Checkpoint]) -> None:
    for name, mark in (
        ("minicpm5", "<function name="), ("minicpm3", START), ("minicpm-xml", "<tool_call>"),
    ):  # fmt: skip
        raw = f"Write {mark} first. Done."
        found = dialect(checkpoint_of("minicpm", chat_template=TEMPLATES[name]))
        check(found, Example(raw=raw, text=raw, tools=TOOLS))


def test_bug_33_a_call_that_is_cut_off(checkpoint_of: Callable[..., Checkpoint]) -> None:
    for name, raw in (
        ("minicpm5", '<function name="w"><param name="city">trunc'),
        ("minicpm3", f'{START}\n```python\nf(city="Par'),
    ):
        found = dialect(checkpoint_of("minicpm", chat_template=TEMPLATES[name]))
        check(found, Example(raw=raw, errors=(raw,), cut=True, tools=TOOLS))


def test_a_release_whose_template_says_nothing_reads_its_block_of_python(
    checkpoint_of: Callable[..., Checkpoint],
) -> None:
    found = dialect(checkpoint_of("minicpm", chat_template=TEMPLATES["minicpm"]))
    assert found.name == "minicpm"
    check(found, Example(raw=block('w(city="Paris")'), calls=(PARIS,)))
