"""A reply is split into text, reasoning and calls, the same however it is cut; nothing is lost."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from phyla.engine.classifier import Classifier, SpanEvent
from phyla.engine.spans import Span
from phyla.events import (
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallFailed,
    ToolCallFinished,
    ToolCallStarted,
)
from phyla.family import Dialect, ReasoningMarks
from phyla.messages import Tool
from phyla.testing.replies import Example, check, outcome, read_items
from phyla.tools.function_xml import FunctionXmlFormat
from phyla.tools.hermes import HermesFormat

MARKS = ReasoningMarks(open="<think>", close="</think>", ending="\n</think>\n\n")
HERMES = Dialect(name="test", reasoning=MARKS, tools=HermesFormat(), call_ends=("</tool_call>",))
XML = Dialect(
    name="test-xml", reasoning=MARKS, tools=FunctionXmlFormat(), call_ends=("</tool_call>",)
)
CHANNELS = Dialect(
    name="channels",
    reasoning=ReasoningMarks(
        open="<|channel>", close="<channel|>", title="thought", reenter=True, ending="\n<channel|>"
    ),
    tools=HermesFormat(),
    call_ends=("</tool_call>",),
)
PLAIN = Dialect(name="plain")

CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
F = ("f", {"a": 1})


def events_of(classifier: Classifier, *pieces: str) -> list[SpanEvent]:
    return [event for piece in pieces for event in classifier.feed(piece)] + classifier.finish()


EXAMPLES = {
    "an answer": Example(raw="Hello, world.", text="Hello, world."),
    "nothing": Example(raw=""),
    "blanks and line breaks are kept": Example(raw=" \n a\n\nb \n", text=" \n a\n\nb \n"),
    "reasoning, then the answer": Example(
        raw="<think>\nplan\n</think>\n\nHi", text="Hi", reasoning="plan"
    ),
    "line breaks inside are kept": Example(
        raw="<think>\na\n\nb\n</think>\n\n  c\n\nd", text="  c\n\nd", reasoning="a\n\nb"
    ),
    "blanks before the first marker": Example(
        raw="\n <think>plan</think>Hi", text="Hi", reasoning="plan"
    ),
    "empty reasoning": Example(raw="<think>\n\n</think>\n\nHi", text="Hi"),
    "a second span before the answer": Example(
        raw="<think>a</think>\n<think>b</think>\nHi", text="Hi", reasoning="ab"
    ),
    "reasoning that was never closed": Example(raw="<think>\nplan\n", reasoning="plan\n"),
    "the prompt opened it": Example(
        raw="plan\n</think>\n\nHi", text="Hi", reasoning="plan", in_reasoning=True
    ),
    "the prompt opened it and so does the model": Example(
        raw="\n<think>\nplan</think>Hi", text="Hi", reasoning="plan", in_reasoning=True
    ),
    "a call": Example(raw=CALL, calls=(F,)),
    "text, a call, text": Example(raw=f"Look:\n{CALL}\nDone.", text="Look:\nDone.", calls=(F,)),
    "two calls with a line break between": Example(raw=f"{CALL}\n{CALL}\n", calls=(F, F)),
    "reasoning, then a call": Example(
        raw=f"<think>\nplan\n</think>\n\n{CALL}", reasoning="plan", calls=(F,)
    ),
    "reasoning after a call": Example(
        raw=f"{CALL}\n<think>\nhm\n</think>\n\nHi", text="Hi", reasoning="hm", calls=(F,)
    ),
    "a broken call between good ones": Example(
        raw=f'{CALL}\n<tool_call>\n{{"name": 3}}\n</tool_call>\n{CALL}',
        calls=(F, F),
        errors=('<tool_call>\n{"name": 3}\n</tool_call>',),
    ),
    "a stray end of a call": Example(raw=f"{CALL}\n</tool_call>\nHi", text="Hi", calls=(F,)),
    "an orphaned close": Example(raw="plan</think>Hi", text="planHi"),
    "a close after the answer began": Example(raw="Hi\n</think>\nthere", text="Hi\nthere"),
    "markers of calls without tools are text": Example(
        raw=f"Use {CALL}!", text=f"Use {CALL}!", tools=None
    ),
    "near-markers": Example(raw="a<b <thin <tool_cal </thought>", text="a<b <thin <tool_cal </thought>"),
    "a marker's beginning at the end": Example(raw="Hi <th", text="Hi <th"),
    "markers in unicode": Example(
        raw="<think>é😀</think>ü<tool😀", text="ü<tool😀", reasoning="é😀"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_cut_of_an_example_is_understood_the_same(name: str) -> None:
    check(HERMES, EXAMPLES[name])


def test_bug_16_a_closed_channel_before_the_answer() -> None:
    check(CHANNELS, Example(raw="<|channel>thought\nplan\n<channel|>4", text="4", reasoning="plan"))
    check(CHANNELS, Example(raw="<|channel>thought\nplan\n<channel|>", reasoning="plan"))


def test_bug_17_the_prompt_opened_the_channel() -> None:
    check(
        CHANNELS,
        Example(raw="plan<channel|>answer", text="answer", reasoning="plan", in_reasoning=True),
    )


def test_bug_18_every_cut_of_a_channel() -> None:
    raw = "<|channel>thought\nplan<channel|>answer"
    check(CHANNELS, Example(raw=raw, text="answer", reasoning="plan"))


def test_bug_20_tags_that_the_answer_speaks_of_are_text() -> None:
    raw = "<think>plan</think>Use `<think>x</think>` tags"
    check(HERMES, Example(raw=raw, text="Use `<think>x</think>` tags", reasoning="plan"))


def test_bug_21_a_call_inside_reasoning_ends_it() -> None:
    raw = (
        "<think>\nread it\n<tool_call>\n<function=read>\n<parameter=filePath>\ndocs/probe.txt\n"
        "</parameter>\n</function>\n</tool_call>\n</think>"
    )
    call = ("read", {"filePath": "docs/probe.txt"})
    check(XML, Example(raw=raw, reasoning="read it", calls=(call,)))


def test_bug_23_a_tag_in_prose_is_text() -> None:
    raw = "Write <tool_call> before the JSON. Done."
    check(HERMES, Example(raw=raw, text=raw))
    check(XML, Example(raw=raw, text=raw))
    pair = "Between <tool_call> and </tool_call> stands JSON."
    check(HERMES, Example(raw=pair, text=pair))


def test_bug_23_a_tag_in_prose_does_not_end_reasoning() -> None:
    raw = "<think>\nI write <tool_call> first.\n</think>\n\nHi"
    check(HERMES, Example(raw=raw, text="Hi", reasoning="I write <tool_call> first."))


def test_bug_33_a_call_that_was_cut_off_is_incomplete() -> None:
    raw = 'Hi\n<tool_call>\n{"name": "f", "arguments": {"q": "ab'
    check(HERMES, Example(raw=raw, text="Hi", errors=(raw[3:],), cut=True))
    classifier = Classifier(HERMES, tools=())
    events_of(classifier, CALL, raw)
    assert [call.name for call in classifier.calls] == ["f"]
    assert classifier.errors[0].incomplete
    assert classifier.finish_reason("length") == "length"
    assert classifier.finish_reason("stop") == "stop"


def test_bug_39_a_stop_text_is_cut_exactly() -> None:
    check(HERMES, Example(raw="abcDEFGHIJkl", text="abc", stop="DEFGHIJ", stops=("DEFGHIJ",)))
    check(HERMES, Example(raw="Hi\nUser: no", text="Hi", stop="\nUser:", stops=("\nUser:",)))


def test_bug_39_what_a_stop_text_held_back_is_not_lost_at_the_end() -> None:
    check(HERMES, Example(raw="Hi\nUse", text="Hi\nUse", stops=("\nUser:",)))
    check(HERMES, Example(raw="Hi <th", text="Hi <th", stops=("<thx",)))
    check(
        HERMES,
        Example(raw="<think>a</thi", reasoning="a</thi", stops=("</thinx",)),
    )


def test_bug_39_a_stop_text_beside_a_marker() -> None:
    raw = f"<think>END</think>\n\nHi END {CALL}"
    check(HERMES, Example(raw=raw, text="Hi ", reasoning="END", stop="END", stops=("END",)))


def test_stop_texts_do_not_count_in_reasoning_calls_and_around_markers() -> None:
    call = CALL.replace("1", '"stop"')
    raw = f"<think>\nstop\n\n</think>\n\n{call}\n\nok"
    check(
        HERMES,
        Example(
            raw=raw,
            text="ok",
            reasoning="stop",
            calls=(("f", {"a": "stop"}),),
            stops=("stop", "\n\n"),
        ),
    )


def test_a_stop_text_may_be_a_marker() -> None:
    check(HERMES, Example(raw=f"Hi {CALL}", text="Hi ", stop="<tool_call>", stops=("<tool_call>",)))


def test_what_comes_after_a_stop_text_is_kept_as_raw() -> None:
    classifier = Classifier(HERMES, stops=("X",))
    assert classifier.feed("aXb<think>") == [TextDelta("a")]
    assert classifier.stopped
    assert classifier.feed("c") == classifier.finish() == []
    assert classifier.raw == "aXb<think>c"
    assert classifier.spans == (Span("text", "a"), Span("stop", "Xb<think>c"))
    assert classifier.finish_reason("length") == "stop"


def test_a_channel_of_another_name_is_text() -> None:
    raw = "<|channel>thought\nplan\n<channel|><|channel>response\nHi<channel|>"
    check(CHANNELS, Example(raw=raw, text="Hi", reasoning="plan"))
    check(CHANNELS, Example(raw="a\n<|channel>final\nb", text="a\nb"))


def test_a_channel_without_a_name_is_reasoning() -> None:
    for name in ("", "thought", "\n", "thought\n"):
        raw = f"<|channel>{name}<channel|>Hi"
        check(CHANNELS, Example(raw=raw, text="Hi"))
    check(CHANNELS, Example(raw="<|channel>I think so<channel|>", reasoning="I think so"))
    check(CHANNELS, Example(raw="<|channel>" + "x" * 40, reasoning="x" * 40))


def test_a_channel_name_that_was_cut_off_is_not_shown() -> None:
    check(CHANNELS, Example(raw="<|channel>thou"))
    check(CHANNELS, Example(raw="Hi <|chan", text="Hi <|chan"))


def test_reasoning_may_come_back_where_the_dialect_allows_it() -> None:
    raw = "<|channel>thought\na\n<channel|>Hi\n<|channel>thought\nb<channel|>\nthere"
    check(CHANNELS, Example(raw=raw, text="Hi\nthere", reasoning="ab"))


def test_a_call_inside_reasoning_is_reasoning_where_the_dialect_says_so() -> None:
    marks = ReasoningMarks(open="<think>", close="</think>", ending="</think>", call_closes=False)
    dialect = Dialect(name="strict", reasoning=marks, tools=HermesFormat())
    check(dialect, Example(raw=f"<think>{CALL}</think>Hi", text="Hi", reasoning=CALL))


def test_a_dialect_without_markers_withholds_nothing() -> None:
    classifier = Classifier(PLAIN, tools=())
    for piece in ("\n", " ", "<think>", "\n\n", "<tool"):
        assert classifier.feed(piece) == [TextDelta(piece)]
    assert classifier.finish() == []


def test_only_the_beginning_of_a_marker_is_withheld() -> None:
    classifier = Classifier(HERMES, tools=())
    assert classifier.feed("Hi <th") == [TextDelta("Hi ")]
    assert classifier.feed("e") == [TextDelta("<the")]
    assert classifier.feed(" <think") == [TextDelta(" ")]
    assert classifier.finish() == [TextDelta("<think")]


def test_a_call_is_told_as_it_comes() -> None:
    classifier = Classifier(HERMES, tools=(), call_ids="r7")
    events = events_of(classifier, CALL[:26], CALL[26:44], CALL[44:])
    (call,) = classifier.calls
    assert (call.id, call.name, call.arguments, call.raw) == ("r7_0", "f", {"a": 1}, CALL)
    assert events[0] == ToolCallStarted(0, "r7_0", "f")
    assert events[-1] == ToolCallFinished(0, call)
    assert all(isinstance(event, ToolCallDelta) for event in events[1:-1])
    assert classifier.finish_reason("stop") == "tool_calls"
    assert classifier.finish_reason("length") == "length"
    assert classifier.finish_reason("cancelled") == "cancelled"


def test_a_failed_call_keeps_its_index_and_the_next_has_its_own() -> None:
    broken = '<tool_call>\n{"name": "g", "arguments": 3}\n</tool_call>'
    classifier = Classifier(HERMES, tools=())
    events = events_of(classifier, broken + CALL)
    (failed,) = (event for event in events if isinstance(event, ToolCallFailed))
    assert failed.index == 0
    assert [call.id for call in classifier.calls] == ["call_1"]


def test_a_reply_that_has_to_be_a_call_starts_inside_it() -> None:
    seed = HermesFormat().opening("f")
    classifier = Classifier(HERMES, tools=(), seed=seed)
    events_of(classifier, CALL[len(seed) :])
    assert CALL.startswith(seed)
    assert [call.arguments for call in classifier.calls] == [{"a": 1}]
    assert classifier.raw == CALL


def test_reasoning_is_open_from_its_marker_to_its_close() -> None:
    classifier = Classifier(HERMES, tools=())
    seen = []
    for piece in ("a", "\n", "<think", "no"):
        classifier.feed(piece)
        seen.append(classifier.reasoning_open)
    assert seen == [False] * 4
    classifier = Classifier(HERMES, tools=())
    classifier.feed("<think>")
    assert classifier.reasoning_open
    assert classifier.feed("plan") == [ReasoningDelta("plan")]
    classifier.feed("</think>")
    assert not classifier.reasoning_open


def test_reasoning_that_was_never_closed_stays_open() -> None:
    classifier = Classifier(HERMES, in_reasoning=True)
    events_of(classifier, "plan")
    assert classifier.reasoning_open
    assert (classifier.text, classifier.reasoning) == ("", "plan")


def test_a_marker_that_is_a_token_is_text_when_it_is_typed() -> None:
    classifier = Classifier(HERMES, tools=(), marks=("<think>", "</think>", "<tool_call>"))
    events = [
        *classifier.mark("<think>"),
        *classifier.feed("the tag </think>"),
        *classifier.mark("</think>"),
        *classifier.feed(f"and {CALL}"),
        *classifier.finish(),
    ]
    assert classifier.reasoning == "the tag </think>"
    assert classifier.text == f"and {CALL.removesuffix('</tool_call>')}".rstrip()
    assert outcome(classifier, events)


# Anything at all.

_PARTS = (
    *("<think>", "</think>", "<tool_call>", "</tool_call>", "<|channel>", "<channel|>"),
    *("thought\n", "response\n", "\n", "\n\n", " ", "<", ">", "{", "}", '"', "a", "é", "😀"),
    *('{"name": "f", "arguments": {', '"a": 1}}', '"b": "x', CALL, "STOP", "ST", "thou"),
    *("<function=f>", "<parameter=a>\n", "\n</parameter>", "</function>", "<tool_", "</thi"),
)
_RAW = st.lists(st.one_of(st.sampled_from(_PARTS), st.text(max_size=4)), max_size=12)
_EXAMPLES = 3 * settings().max_examples


@settings(
    max_examples=_EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    dialect=st.sampled_from((HERMES, XML, CHANNELS, PLAIN)),
    parts=_RAW,
    data=st.data(),
    in_reasoning=st.booleans(),
    tools=st.sampled_from((None, (), (Tool(name="f"),))),
    stops=st.sampled_from(((), ("STOP",), ("\n\n", "a<"))),
)
@example(
    dialect=HERMES,
    parts=["<tool_call>", "<think>", "\n", "</tool_call>"],
    data=None,
    in_reasoning=False,
    tools=(),
    stops=(),
)
def test_no_text_is_lost_and_no_cut_matters(
    dialect: Dialect,
    parts: list[str],
    data: st.DataObject | None,
    in_reasoning: bool,
    tools: tuple[Tool, ...] | None,
    stops: tuple[str, ...],
) -> None:
    raw = "".join(parts)
    given_how = Example(
        raw=raw,
        in_reasoning=in_reasoning and dialect.reasoning is not None,
        tools=tools,
        stops=stops,
    )
    whole = read_items(dialect, [(raw, False)], given_how)
    assert "".join(span.raw for span in whole.spans) == raw
    assert read_items(dialect, [(char, False) for char in raw], given_how) == whole
    if data is not None:
        places = data.draw(st.lists(st.integers(0, len(raw)), max_size=5).map(sorted))
        pieces = [raw[a:b] for a, b in zip([0, *places], [*places, len(raw)], strict=True)]
        assert read_items(dialect, [(piece, False) for piece in pieces], given_how) == whole


@settings(max_examples=_EXAMPLES, deadline=None)
@given(
    dialect=st.sampled_from((HERMES, XML, CHANNELS)),
    parts=_RAW,
    in_reasoning=st.booleans(),
)
def test_no_text_is_lost_and_no_cut_matters_with_markers_as_tokens(
    dialect: Dialect, parts: list[str], in_reasoning: bool
) -> None:
    marks = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<|channel>", "<channel|>")
    raw = "".join(parts)
    given_how = Example(raw=raw, in_reasoning=in_reasoning)
    items = [(part, part in marks) for part in parts]
    whole = read_items(dialect, items, given_how, marks=marks)
    assert "".join(span.raw for span in whole.spans) == raw
    chars = [
        item
        for part, is_mark in items
        for item in ([(part, True)] if is_mark else [(char, False) for char in part])
    ]
    assert read_items(dialect, chars, given_how, marks=marks) == whole
