"""Checks how replies are split, in every way that they can be cut. For authors of dialects.

An `Example` is what a model said and what it means. `check` reads it whole, character by
character, in two and in three pieces, with markers as text and as tokens, and compares.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from phyla.checkpoint import TokenizerData
from phyla.engine.classifier import Classifier, SpanEvent, markers
from phyla.engine.reply_reader import ReplyReader
from phyla.engine.stops import Match, PatternScanner
from phyla.engine.tokenizer import Tokenizer
from phyla.events import (
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallFailed,
    ToolCallFinished,
    ToolCallStarted,
)
from phyla.testing.cuts import cuts, places
from phyla.testing.tokenizer import BYTE_TOKENS, tokenizer_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from phyla.engine.spans import Span
    from phyla.family import Dialect
    from phyla.messages import Tool

# A piece of a reply, and whether it is a marker that came as one token.
Item: TypeAlias = tuple[str, bool]


@dataclass(frozen=True, kw_only=True)
class Example:
    """What a model said, and how it should be understood.

    Attributes:
        raw: its words, markers included, end-of-turn token excluded.
        text: the answer.
        reasoning: the reasoning.
        calls: name and arguments of each call.
        errors: the raw text of each error.
        cut: whether it was cut off inside a call.
        stop: the stop text that ended it.
        in_reasoning: whether the prompt ends inside reasoning.
        tools: what was offered; None if nothing was.
        stops: stop texts.
        as_text: whether it reads so where markers are ordinary text.
        as_tokens: whether it reads so where every marker in `raw` is a token.
    """

    raw: str
    text: str = ""
    reasoning: str = ""
    calls: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    errors: tuple[str, ...] = ()
    cut: bool = False
    stop: str | None = None
    in_reasoning: bool = False
    tools: Sequence[Tool] | None = ()
    stops: tuple[str, ...] = ()
    as_text: bool = True
    as_tokens: bool = True


@dataclass(frozen=True)
class Outcome:
    """All that a classifier says about a reply."""

    text: str
    reasoning: str
    calls: tuple[tuple[str, str, str, str, tuple[str, ...]], ...]
    errors: tuple[tuple[str, str, bool], ...]
    spans: tuple[Span, ...]
    stop: str | None
    cut: bool
    reasoning_open: bool


def outcome(classifier: Classifier, events: Sequence[SpanEvent]) -> Outcome:
    """What a finished classifier found; its events must tell the same story."""
    said: list[str] = []
    thought: list[str] = []
    arguments: dict[int, str] = {}
    names: dict[int, tuple[str, str]] = {}
    finished: list[int] = []
    errors: list[object] = []
    for event in events:
        match event:
            case TextDelta(text=text):
                said.append(text)
            case ReasoningDelta(text=text):
                thought.append(text)
            case ToolCallStarted(index=index, id=call_id, name=name):
                assert index not in names
                names[index], arguments[index] = (call_id, name), ""
            case ToolCallDelta(index=index, arguments=piece):
                arguments[index] += piece
            case ToolCallFinished(index=index, call=call):
                assert names[index] == (call.id, call.name)
                assert json.loads(arguments[index]) == call.arguments
                assert index not in finished
                finished.append(index)
            case ToolCallFailed(error=error):
                errors.append(error)
    calls = classifier.calls
    assert "".join(said) == classifier.text
    assert "".join(thought) == classifier.reasoning
    assert errors == classifier.errors
    assert len(finished) == len(calls)
    assert len({call.id for call in calls}) == len(calls)
    return Outcome(
        text=classifier.text,
        reasoning=classifier.reasoning,
        calls=tuple((c.id, c.name, json.dumps(c.arguments), c.raw, c.notes) for c in calls),
        errors=tuple((e.raw, e.reason, e.incomplete) for e in classifier.errors),
        spans=classifier.spans,
        stop=classifier.stop,
        cut=classifier.cut,
        reasoning_open=classifier.reasoning_open,
    )


def read_items(
    dialect: Dialect, items: Iterable[Item], example: Example, *, marks: Iterable[str] = ()
) -> Outcome:
    """Read a reply from pieces of text and markers."""
    classifier = Classifier(
        dialect,
        tools=example.tools,
        stops=example.stops,
        in_reasoning=example.in_reasoning,
        marks=frozenset(marks),
    )
    events: list[SpanEvent] = []
    for piece, is_mark in items:
        events += classifier.mark(piece) if is_mark else classifier.feed(piece)
    events += classifier.finish()
    return outcome(classifier, events)


def read_ids(
    dialect: Dialect, tokenizer: Tokenizer, ids: Iterable[int], example: Example
) -> Outcome:
    """Read a reply from token ids."""
    reader = ReplyReader(
        tokenizer,
        dialect,
        tools=example.tools,
        stops=example.stops,
        in_reasoning=example.in_reasoning,
    )
    events = [event for token in ids for event in reader.add(token)]
    events += reader.finish()
    return outcome(reader.classifier, events)


def check(dialect: Dialect, example: Example) -> None:
    """Read an example in every way.

    Raises:
        AssertionError: it is not understood as it should be, or not in every way the same.
    """
    if example.as_text:
        whole = read_items(dialect, [(example.raw, False)], example)
        assert_means(whole, example)
        for pieces in cuts(example.raw):
            items = [(piece, False) for piece in pieces]
            assert read_items(dialect, items, example) == whole, pieces
    if example.as_tokens:
        marks = tuple(markers(dialect, calls=example.tools is not None))
        items = marked(example.raw, marks)
        whole = read_items(dialect, items, example, marks=marks)
        assert_means(whole, example)
        for cut in cut_items(items):
            assert read_items(dialect, cut, example, marks=marks) == whole, cut
        tokenizer = byte_tokenizer((*marks, *dialect.call_syntax), special=True)
        ids = tokenizer.encode(example.raw, add_special_tokens=False)
        assert read_ids(dialect, tokenizer, ids, example) == whole


def assert_means(found: Outcome, example: Example) -> None:
    """Compare what was found with what an example means."""
    assert found.text == example.text
    assert found.reasoning == example.reasoning
    assert [(name, json.loads(args)) for _, name, args, _, _ in found.calls] == [
        (name, dict(arguments)) for name, arguments in example.calls
    ]
    assert [raw for raw, _, _ in found.errors] == list(example.errors)
    assert found.cut == example.cut
    assert found.stop == example.stop
    assert "".join(span.raw for span in found.spans) == example.raw
    joined = dict.fromkeys(("text", "reasoning", "call", "error", "marker", "stop"), "")
    for span in found.spans:
        joined[span.kind] += span.raw
    assert joined["text"] == example.text
    assert joined["reasoning"] == example.reasoning
    assert joined["call"] == "".join(raw for _, _, _, raw, _ in found.calls)
    assert joined["error"] == "".join(example.errors)


def cut_items(items: Sequence[Item]) -> Iterator[list[Item]]:
    """The same for a reply's text between its markers, which stay whole."""
    all_places = [
        (index, at)
        for index, (piece, is_mark) in enumerate(items)
        if not is_mark
        for at in range(1, len(piece))
    ]
    yield [
        item
        for piece, is_mark in items
        for item in ([(piece, True)] if is_mark else [(char, False) for char in piece])
    ]
    for first, second in places(all_places):
        yield _cut_at(items, {first, second})


def _cut_at(items: Sequence[Item], places: set[tuple[int, int]]) -> list[Item]:
    cut: list[Item] = []
    for index, (piece, is_mark) in enumerate(items):
        start = 0
        for at in sorted(at for place, at in places if place == index):
            cut.append((piece[start:at], is_mark))
            start = at
        cut.append((piece[start:], is_mark))
    return cut


def marked(raw: str, marks: Sequence[str]) -> list[Item]:
    """A text's pieces, each of its markers one."""
    scanner = PatternScanner(marks)
    parts = scanner.feed(raw) + scanner.flush()
    return [(part.pattern, True) if isinstance(part, Match) else (part, False) for part in parts]


@lru_cache(maxsize=32)
def byte_tokenizer(markers: tuple[str, ...], *, special: bool) -> Tokenizer:
    """A vocabulary of bytes and these markers, which are special tokens or not."""
    data = json.loads(tokenizer_json())
    template = data["added_tokens"][0]
    data["added_tokens"] = [
        {**template, "id": BYTE_TOKENS + number, "content": marker, "special": special}
        for number, marker in enumerate(dict.fromkeys(markers))
    ]
    return Tokenizer(TokenizerData(json=json.dumps(data)))
