"""How a reply looks on a terminal that standard output and standard error share."""

from __future__ import annotations

import io
import re
import sys

import pytest

from phyla.cli.call_block import argument_lines
from phyla.cli.screen import Screen
from phyla.events import (
    Event,
    Finished,
    ReasoningDelta,
    Reply,
    TextDelta,
    Timings,
    ToolCallError,
    ToolCallFailed,
    ToolCallFinished,
    ToolCallStarted,
    Usage,
)
from phyla.messages import ToolCall

CALL = ToolCall(id="c0", name="clock", arguments={"zone": "UTC"})
CALLING = [ToolCallStarted(0, "c0", "clock"), ToolCallFinished(0, CALL)]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(monkeypatch, *events: Event, reasoning: bool | None = None) -> str:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setattr(sys, "stderr", terminal)
    screen = Screen(reasoning=reasoning)
    for event in events:
        screen.show(event)
    screen.leave()
    return terminal.getvalue()


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def finished(*events: Event) -> Finished:
    return Finished(
        Reply(
            text="".join(event.text for event in events if isinstance(event, TextDelta)),
            reasoning="".join(event.text for event in events if isinstance(event, ReasoningDelta)),
            tool_calls=tuple(e.call for e in events if isinstance(e, ToolCallFinished)),
            finish_reason="stop",
            usage=Usage(),
            timings=Timings(),
            seed=0,
        )
    )


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ([TextDelta("Hi.")], "Hi.\n"),
        ([TextDelta("Hi.\n")], "Hi.\n"),
        ([], "\n"),
        ([ReasoningDelta("Hm"), ReasoningDelta("."), TextDelta("Hi.")], "Hm.\n\nHi.\n"),
        ([ReasoningDelta("Hm.\n"), TextDelta("Hi.")], "Hm.\n\nHi.\n"),
        ([ReasoningDelta("Hm.")], "Hm.\n"),
        ([TextDelta("So"), ReasoningDelta("Hm."), TextDelta("Hi.")], "So\nHm.\n\nHi.\n"),
        ([TextDelta("Let me see."), *CALLING], 'Let me see.\ntool call: clock\n  zone: "UTC"\n'),
        ([ReasoningDelta("Hm."), *CALLING], 'Hm.\n\ntool call: clock\n  zone: "UTC"\n'),
        ([*CALLING, TextDelta("Hi.")], 'tool call: clock\n  zone: "UTC"\nHi.\n'),
        (
            [
                TextDelta("a"),
                ToolCallFailed(None, ToolCallError(raw="b", reason="c")),
                TextDelta("d"),
            ],
            "a\ntool call failed: c\n  b\nd\n",
        ),
    ],
)
def test_every_part_of_a_reply_begins_on_its_own_line(monkeypatch, events, text):
    assert plain(shown(monkeypatch, *events, finished(*events))) == text


def test_reasoning_is_dimmed(monkeypatch):
    assert shown(monkeypatch, ReasoningDelta("Hm.")).startswith("\x1b[2mHm.\x1b[0m")


def test_reasoning_can_be_hidden(monkeypatch):
    events = [ReasoningDelta("Hm."), TextDelta("Hi.")]
    assert shown(monkeypatch, *events, finished(*events), reasoning=False) == "Hi.\n"


def test_a_reply_that_fails_leaves_the_line_free(monkeypatch):
    assert shown(monkeypatch, TextDelta("He")) == "He\n"
    assert plain(shown(monkeypatch, ReasoningDelta("Hm"))) == "Hm\n"


def test_calls_that_end_in_another_order_are_named_again(monkeypatch):
    other = ToolCall(id="c1", name="weather")
    text = shown(
        monkeypatch,
        ToolCallStarted(0, "c0", "clock"),
        ToolCallStarted(1, "c1", "weather"),
        ToolCallFinished(0, CALL),
        ToolCallFinished(1, other),
    )
    assert plain(text).splitlines()[2:] == [
        "tool call: clock", '  zone: "UTC"', "tool call: weather",
    ]  # fmt: skip


def test_arguments_are_a_line_each_and_a_program_is_its_lines():
    call = ToolCall(
        name="f",
        arguments={
            "n": 1.5,
            "é": "ü",
            "code": "def f():\n    return 1\n",
            "odd": "a\n\x1b[31m",
            "short": [1, {"a": None}],
            "long": {"a": "x" * 40, "b": "y" * 40},
        },
        notes=("a bad escape was repaired",),
    )
    assert list(argument_lines(call)) == [
        "  n: 1.5",
        '  é: "ü"',
        "  code:",
        "    def f():",
        "        return 1",
        '  odd: "a\\n\\u001b[31m"',
        '  short: [1, {"a": null}]',
        "  long: {",
        f'    "a": "{"x" * 40}",',
        f'    "b": "{"y" * 40}"',
        "  }",
        "  (a bad escape was repaired)",
    ]
