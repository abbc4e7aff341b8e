"""Gemma 4's replies are understood in every cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from phyla.testing.replies import Example, check
from phyla_families.gemma4.dialect import dialect

if TYPE_CHECKING:
    from collections.abc import Callable

    from phyla.checkpoint import Checkpoint

CLOCK = "<|tool_call>call:clock{}<tool_call|>"
LIGHT = '<|tool_call>call:light{room:<|"|>Kitchen<|"|>,level:40,on:true}<tool_call|>'
THOUGHT = "<|channel>thought\nplan\n<channel|>"

CLOCK_CALL = ("clock", {})
LIGHT_CALL = ("light", {"room": "Kitchen", "level": 40, "on": True})

EXAMPLES = {
    "an answer": Example(raw="4", text="4"),
    "an empty thought": Example(raw="<|channel>thought\n<channel|>4", text="4"),
    "a call": Example(raw=LIGHT, calls=(LIGHT_CALL,)),
    "two calls with nothing between": Example(raw=CLOCK + LIGHT, calls=(CLOCK_CALL, LIGHT_CALL)),
    "a thought, then a call": Example(raw=THOUGHT + CLOCK, reasoning="plan", calls=(CLOCK_CALL,)),
    "text, then a call": Example(raw=f"I look.\n{CLOCK}", text="I look.", calls=(CLOCK_CALL,)),
    "a thought, a call, a thought, text": Example(
        raw=f"{THOUGHT}{CLOCK}{THOUGHT}Done.", text="Done.", reasoning="planplan", calls=(CLOCK_CALL,)
    ),
    "a thought in the middle of the answer": Example(
        raw=f"One.\n{THOUGHT}\nTwo.", text="One.\nTwo.", reasoning="plan"
    ),
    "a thought that never ends": Example(raw="<|channel>thought\nhm", reasoning="hm"),
    "a channel of another name": Example(raw="<|channel>response\n4<channel|>", text="4"),
    "a call while it thinks": Example(
        raw=f"<|channel>thought\nplan\n{CLOCK}", reasoning="plan", calls=(CLOCK_CALL,)
    ),
    "an extra end of a call": Example(
        raw=f"{CLOCK}<tool_call|>Done.", text="Done.", calls=(CLOCK_CALL,)
    ),
    "no end of a call": Example(raw="<|tool_call>call:clock{}", calls=(CLOCK_CALL,)),
    "the channel's markers inside a string": Example(
        raw='<|tool_call>call:w{s:<|"|>a<|channel>b<channel|>c<|"|>}<tool_call|>',
        calls=(("w", {"s": "a<|channel>b<channel|>c"}),),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples(name: str, checkpoint_of: Callable[..., Checkpoint]) -> None:
    check(dialect(checkpoint_of("gemma4", chat_template="{{ enable_thinking }}")), EXAMPLES[name])


def test_bug_16_a_thought_beside_a_system_message(
    checkpoint_of: Callable[..., Checkpoint],
) -> None:
    found = dialect(checkpoint_of("gemma4"))
    raw = "<|channel>thought\nplan\n<channel|>4"
    check(found, Example(raw=raw, text="4", reasoning="plan"))
    check(found, Example(raw=raw[:-1], reasoning="plan"))


def test_bug_17_the_prompt_opened_the_channel(checkpoint_of: Callable[..., Checkpoint]) -> None:
    found = dialect(checkpoint_of("gemma4"))
    turn = (
        "<|turn>model\n<|tool_call>call:f{}<tool_call|><|tool_response>response:f{}<tool_response|>"
    )
    assert found.opens_reasoning(f"{turn}<|channel>thought\n")
    assert not found.opens_reasoning(f"<|channel>thought\n{turn}")
    raw = "plan<channel|>answer"
    check(found, Example(raw=raw, text="answer", reasoning="plan", in_reasoning=True))


def test_bug_18_every_cut_of_a_channel(checkpoint_of: Callable[..., Checkpoint]) -> None:
    raw = "<|channel>thought\nplan<channel|>answer"
    check(dialect(checkpoint_of("gemma4")), Example(raw=raw, text="answer", reasoning="plan"))


def test_bug_23_a_marker_as_prose(checkpoint_of: Callable[..., Checkpoint]) -> None:
    raw = "Write <|tool_call> before the call. Done."
    check(dialect(checkpoint_of("gemma4")), Example(raw=raw, text=raw))


def test_bug_25_quotes_inside_a_string(checkpoint_of: Callable[..., Checkpoint]) -> None:
    body = '{code:<|"|>q(<|"|><|"|><|"|> S <|"|><|"|><|"|>).df()<|"|>,r:[<|"|>d<|"|>]}'
    code = 'q(<|"|><|"|><|"|> S <|"|><|"|><|"|>).df()'
    check(
        dialect(checkpoint_of("gemma4")),
        Example(
            raw=f"<|tool_call>call:f{body}<tool_call|>", calls=(("f", {"code": code, "r": ["d"]}),)
        ),
    )


@pytest.mark.parametrize(
    ("body", "call"),
    [
        (
            'f{data_refs:["ds_1"],o:{"mode": "fast"}}',
            ("f", {"data_refs": ["ds_1"], "o": {"mode": "fast"}}),
        ),
        ("f{name:'a, b: c'}", ("f", {"name": "a, b: c"})),
        ('google:mcp:create-pdf{a:<|"|>x<|"|>}', ("google:mcp:create-pdf", {"a": "x"})),
    ],
)
def test_bug_26_other_quotes_and_long_names(
    body: str, call: tuple[str, dict[str, object]], checkpoint_of: Callable[..., Checkpoint]
) -> None:
    raw = f"<|tool_call>call:{body}<tool_call|>"
    check(dialect(checkpoint_of("gemma4")), Example(raw=raw, calls=(call,)))


def test_bug_27_strings_come_back_exactly(checkpoint_of: Callable[..., Checkpoint]) -> None:
    value = 'The user said "你好" (Hello), ok\n\t\\d+ note:{x:1}'
    raw = f'<|tool_call>call:f{{reason:<|"|>{value}<|"|>}}<tool_call|>'
    check(dialect(checkpoint_of("gemma4")), Example(raw=raw, calls=(("f", {"reason": value}),)))


def test_bug_33_a_call_that_is_cut_off(checkpoint_of: Callable[..., Checkpoint]) -> None:
    raw = '<|tool_call>call:f{q:<|"|>ab'
    check(dialect(checkpoint_of("gemma4")), Example(raw=raw, errors=(raw,), cut=True))


def test_the_token_that_ends_a_call_ends_it_inside_a_string_too(
    checkpoint_of: Callable[..., Checkpoint],
) -> None:
    call = '<|tool_call>call:f{q:<|"|>ab<tool_call|>'
    check(
        dialect(checkpoint_of("gemma4")),
        Example(raw=f"{call}\nHi", text="Hi", errors=(call,), as_text=False),
    )


def test_turns_end_where_a_tools_result_would_begin(
    checkpoint_of: Callable[..., Checkpoint],
) -> None:
    assert dialect(checkpoint_of("gemma4")).extra_eos == ("<turn|>", "<|tool_response>")
