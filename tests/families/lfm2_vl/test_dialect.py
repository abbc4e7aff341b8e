"""LFM2's replies are understood in every cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from phyla.errors import RequestError
from phyla.messages import Tool
from phyla.testing.replies import Example, check
from phyla_families.lfm2_vl.dialect import dialect

if TYPE_CHECKING:
    from collections.abc import Callable

    from phyla.checkpoint import Checkpoint

START, END = "<|tool_call_start|>", "<|tool_call_end|>"
PARIS = ("weather", {"city": "Paris"})
BODY = '[weather(city="Paris")]'

EXAMPLES = {
    "an answer": Example(raw="Paris.", text="Paris."),
    "the model thinks by itself": Example(
        raw="<think>\nhm\n</think>\n\nParis.", text="Paris.", reasoning="hm"
    ),
    "the prompt opened reasoning": Example(
        raw="hm</think>Paris.", text="Paris.", reasoning="hm", in_reasoning=True
    ),
    "it never stops to think": Example(raw="hm\nhm", reasoning="hm\nhm", in_reasoning=True),
    "a call": Example(raw=f"{START}{BODY}{END}", calls=(PARIS,)),
    "a call, then text": Example(raw=f"{START}{BODY}{END}Looking.", text="Looking.", calls=(PARIS,)),
    "thinks, then calls": Example(
        raw=f"<think>hm</think>{START}{BODY}{END}", reasoning="hm", calls=(PARIS,)
    ),
    "two calls and a third": Example(
        raw=f"{START}[a(x=1), b(y='two')]{END}{START}[c()]{END}",
        calls=(("a", {"x": 1}), ("b", {"y": "two"}), ("c", {})),
    ),
    "nested values": Example(
        raw=f'{START}[plan(stops=[{{"n": null}}], flag=True, ratio=-0.5, size=(8, 6))]{END}',
        calls=(
            ("plan", {"stops": [{"n": None}], "flag": True, "ratio": -0.5, "size": [8, 6]}),
        ),
    ),
    "calls as JSON": Example(
        raw=f'{START}[{{"name": "weather", "arguments": {{"city": "Paris"}}}}]{END}', calls=(PARIS,)
    ),
    "no markers": Example(raw=BODY, calls=(PARIS,), tools=(Tool(name="weather"),)),
    "a list that is no call": Example(
        raw="[1, 2] and [x](y)", text="[1, 2] and [x](y)", tools=(Tool(name="weather"),)
    ),
    "a bracket later in the answer": Example(
        raw=f"See {BODY}", text=f"See {BODY}", tools=(Tool(name="weather"),)
    ),
    "a call while it thinks": Example(
        raw=f"hm\n{START}{BODY}{END}", reasoning="hm", calls=(PARIS,), in_reasoning=True
    ),
    "the end marker as text inside a string": Example(
        raw=f"{START}[echo(s='{END}')]{END}", calls=(("echo", {"s": END}),), as_tokens=False
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples(name: str, checkpoint_of: Callable[..., Checkpoint]) -> None:
    check(dialect(checkpoint_of("lfm2")), EXAMPLES[name])


def test_bug_20_tags_in_the_answer(checkpoint_of: Callable[..., Checkpoint]) -> None:
    raw = "<think>plan</think>Use `<think>x</think>` tags"
    check(
        dialect(checkpoint_of("lfm2")),
        Example(raw=raw, text="Use `<think>x</think>` tags", reasoning="plan"),
    )


def test_bug_21_a_call_inside_reasoning(checkpoint_of: Callable[..., Checkpoint]) -> None:
    raw = f"<think>\nread it\n{START}{BODY}{END}\n</think>"
    check(dialect(checkpoint_of("lfm2")), Example(raw=raw, reasoning="read it", calls=(PARIS,)))


def test_bug_23_a_marker_as_prose(checkpoint_of: Callable[..., Checkpoint]) -> None:
    raw = f"Write {START} before the list. Done."
    check(dialect(checkpoint_of("lfm2")), Example(raw=raw, text=raw))


@pytest.mark.parametrize(
    ("body", "calls"),
    [
        ("[f1(a=1), f2(b=\"x\")]", (("f1", {"a": 1}), ("f2", {"b": "x"}))),
        ('[foo(note="a)]b", k=2)]', (("foo", {"note": "a)]b", "k": 2}),)),
        ("[memory_get(from=1)]", (("memory_get", {"from": 1}),)),
        ("[sh(command='cat > f << EOF\nhi\nEOF')]", (("sh", {"command": "cat > f << EOF\nhi\nEOF"}),)),
        ("[a.b(x=1)]", (("a.b", {"x": 1}),)),
    ],
)  # fmt: skip
def test_bug_28_python_that_others_trip_over(
    body: str,
    calls: tuple[tuple[str, dict[str, object]], ...],
    checkpoint_of: Callable[..., Checkpoint],
) -> None:
    check(dialect(checkpoint_of("lfm2")), Example(raw=f"{START}{body}{END}", calls=calls))


def test_bug_33_a_call_that_is_cut_off(checkpoint_of: Callable[..., Checkpoint]) -> None:
    raw = f'{START}[weather(city="Par'
    check(dialect(checkpoint_of("lfm2")), Example(raw=raw, errors=(raw,), cut=True))


def test_the_token_that_ends_a_call_ends_it_inside_a_string_too(
    checkpoint_of: Callable[..., Checkpoint],
) -> None:
    raw = f"{START}[echo(s='ab{END}"
    check(
        dialect(checkpoint_of("lfm2")),
        Example(raw=f"{raw}Hi", text="Hi", errors=(raw,), as_text=False),
    )


def test_no_model_has_a_switch(checkpoint_of: Callable[..., Checkpoint]) -> None:
    answers = dialect(checkpoint_of("lfm2"))
    with pytest.raises(RequestError, match="cannot be turned on"):
        answers.thinking_variables(True)
    thinks = dialect(checkpoint_of("lfm2", chat_template="<think>"))
    assert thinks.thinking_variables(True) == {}
    with pytest.raises(RequestError, match="cannot be turned off"):
        thinks.thinking_variables(False)
