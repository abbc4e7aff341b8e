"""Llama's replies are understood in every cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from phyla.messages import Tool
from phyla.testing.replies import Example, check
from phyla_families.llama.dialect import dialect

if TYPE_CHECKING:
    from collections.abc import Callable

    from phyla.checkpoint import Checkpoint

JSON_TEMPLATE = '{{ tools }} {{ tool_calls }} {"name": function name, "parameters": dictionary of'
JSON_TEMPLATE += ' argument name and its value} "parameters":'
HERMES_TEMPLATE = "<tool_call> {{ tool_calls }}"

TOOLS = (Tool(name="w"), Tool(name="now"))
PARIS = ("w", {"city": "Paris"})
CALL = '{"name": "w", "parameters": {"city": "Paris"}}'
NOW = '{"name": "now", "parameters": {}}'
TAGGED = "<tool_call>\n" + CALL.replace("parameters", "arguments") + "\n</tool_call>"

JSON = {
    "an answer": Example(raw="Paris.", text="Paris.", tools=TOOLS),
    "a call": Example(raw=CALL, calls=(PARIS,), tools=TOOLS),
    "a call with its tag": Example(raw=f"<|python_tag|>{CALL}", calls=(PARIS,), tools=TOOLS),
    "two calls": Example(raw=f"{CALL}; {NOW}", calls=(PARIS, ("now", {})), tools=TOOLS),
    "blanks before a call": Example(raw=f"\n\n{CALL}", calls=(PARIS,), tools=TOOLS),
    "JSON that is an answer": Example(raw='{"answer": 4}', text='{"answer": 4}', tools=TOOLS),
    "a tool that nobody offered": Example(
        raw='{"name": "x", "parameters": {}}', text='{"name": "x", "parameters": {}}', tools=TOOLS
    ),
    "JSON later in the answer": Example(raw=f"So {CALL}", text=f"So {CALL}", tools=TOOLS),
    "code": Example(raw="f = {1: {2}}\n", text="f = {1: {2}}\n", tools=TOOLS),
    "a bracket alone": Example(raw="{", errors=("{",), cut=True, tools=TOOLS),
    "without tools": Example(raw=CALL, text=CALL, tools=None),
    "the tag before code": Example(
        raw="<|python_tag|>print(1)", text="<|python_tag|>print(1)", tools=TOOLS
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", JSON)
def test_json_examples(name: str, checkpoint_of: Callable[..., Checkpoint]) -> None:
    found = dialect(checkpoint_of("llama", chat_template=JSON_TEMPLATE))
    assert found.name == "llama3-json"
    check(found, JSON[name])


HERMES = {
    "an answer": Example(raw="Paris.", text="Paris."),
    "a call": Example(raw=TAGGED, calls=(PARIS,)),
    "two calls": Example(raw=f"{TAGGED}\n{TAGGED}", calls=(PARIS, PARIS)),
    "text, a call, text": Example(raw=f"A\n{TAGGED}\nB", text="A\nB", calls=(PARIS,)),
    "a call with `parameters`": Example(
        raw=f"<tool_call>{CALL}</tool_call>", calls=(PARIS,)
    ),
    "JSON without tags": Example(raw=CALL, text=CALL),
    "two stray ends": Example(raw=f"{TAGGED}</tool_call></tool_call>", calls=(PARIS,)),
    "thinking tags are text": Example(raw="<think>a</think>", text="<think>a</think>"),
    "a half tag at the end": Example(raw="A <tool_cal", text="A <tool_cal"),
    "a broken call": Example(
        raw="<tool_call>\n{}\n</tool_call>", errors=("<tool_call>\n{}\n</tool_call>",)
    ),
    "a stop text": Example(raw="A. B.", text="A", stop=". ", stops=(". ",)),
    "without tools": Example(raw=TAGGED, text=TAGGED, tools=None),
}  # fmt: skip


@pytest.mark.parametrize("name", HERMES)
def test_hermes_examples(name: str, checkpoint_of: Callable[..., Checkpoint]) -> None:
    found = dialect(checkpoint_of("llama", chat_template=HERMES_TEMPLATE))
    assert found.name == "llama-hermes"
    check(found, HERMES[name])


def test_bug_23_a_tag_as_prose(checkpoint_of: Callable[..., Checkpoint]) -> None:
    raw = "Write <tool_call> before the JSON. Done."
    found = dialect(checkpoint_of("llama", chat_template=HERMES_TEMPLATE))
    check(found, Example(raw=raw, text=raw))


def test_bug_33_a_call_that_is_cut_off(checkpoint_of: Callable[..., Checkpoint]) -> None:
    raw = CALL[:-8]
    found = dialect(checkpoint_of("llama", chat_template=JSON_TEMPLATE))
    check(found, Example(raw=raw, errors=(raw,), cut=True, tools=TOOLS))


def test_a_plain_llama_has_no_calls_and_no_reasoning(
    checkpoint_of: Callable[..., Checkpoint],
) -> None:
    found = dialect(checkpoint_of("llama"))
    assert (found.name, found.tools, found.reasoning) == ("llama", None, None)
    assert found.extra_eos == ("<|eot_id|>", "<|eom_id|>", "<|im_end|>")
    assert not found.opens_reasoning("<think>")
