"""Finds given texts in a stream of text, however the stream is cut. Knows no token and no model.

`PatternScanner` is the automaton (Aho and Corasick 1975) behind stop texts and markers alike;
`StopMatcher` uses it to end a reply at the first stop text.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from phyla.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Match:
    """A pattern that was found: its text, and its index among the scanner's patterns."""

    pattern: str
    index: int


Segment: TypeAlias = str | Match


@dataclass
class _Node:
    """A prefix of some pattern. `found` is the longest pattern that this prefix ends with."""

    depth: int
    edges: dict[str, _Node] = field(default_factory=dict)
    shorter: _Node | None = None
    found: Match | None = None


@lru_cache(maxsize=64)
def _automaton(patterns: tuple[str, ...]) -> _Node:
    root = _Node(0)
    for index, pattern in enumerate(patterns):
        node = root
        for char in pattern:
            node = node.edges.setdefault(char, _Node(node.depth + 1))
        node.found = node.found or Match(pattern, index)
    waiting = deque([root])
    while waiting:
        node = waiting.popleft()
        for char, child in node.edges.items():
            child.shorter = root if node is root else _follow(node.shorter or root, char)
            child.found = child.found or child.shorter.found
            waiting.append(child)
    return root


def _follow(node: _Node, char: str) -> _Node:
    """The longest prefix of a pattern that `node`'s text, with `char` added, ends with."""
    while char not in node.edges:
        if node.shorter is None:
            return node
        node = node.shorter
    return node.edges[char]


class PatternScanner:
    """Splits streamed text into ordinary text and occurrences of patterns.

    Occurrences do not overlap. The one that starts first wins; of two that start together, the one
    that is complete first. What is withheld is the longest ending of the text so far that may
    still become a pattern, and never more. Each character is looked at in constant amortized time,
    plus once more for those that follow an occurrence and were read before it was certain (fewer
    than the longest pattern has).
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        """Prepare for `patterns`, none of them empty."""
        assert all(patterns), "an empty pattern is everywhere"
        self._root = _automaton(tuple(patterns))
        firsts = "".join(re.escape(char) for char in self._root.edges)
        self._starts = re.compile(f"[{firsts}]" if firsts else r"(?!)")
        self._node = self._root
        self._held = ""
        self._found: Match | None = None
        self._found_at = 0  # where `_found` starts in `_held`

    @property
    def held(self) -> str:
        """The text that is withheld."""
        return self._held

    def feed(self, text: str) -> list[Segment]:
        """Take more text; return what became certain, in order."""
        return self._all(text, last=False)

    def flush(self) -> list[Segment]:
        """Say that no more text comes; return all that was withheld, and start afresh."""
        return self._all("", last=True)

    def find(self, text: str, *, last: bool = False) -> tuple[str, Match | None, str]:
        """Take more text, but read no further than the first occurrence.

        Args:
            text: the next piece.
            last: say that no more text comes.

        Returns:
            The text before the occurrence, as far as it was not returned earlier; the occurrence,
            or None if none is certain; and what follows it, which counts as not read.
        """
        text, position = self._held + text, len(self._held)
        while True:
            if position < len(text):
                if self._node is self._root and self._found is None:
                    start = self._starts.search(text, position)
                    position = len(text) if start is None else start.start()
                    if start is None:
                        continue
                self._node = _follow(self._node, text[position])
                position += 1
                found = self._node.found
                if found is not None:
                    at = position - len(found.pattern)
                    if self._found is None or at < self._found_at:
                        self._found, self._found_at = found, at
            elif not (last and self._found):
                break
            possible = position - self._node.depth  # the earliest start still open
            ended = last and position == len(text)
            if self._found is not None and (ended or possible >= self._found_at):
                match, at = self._found, self._found_at
                self._held, self._node, self._found = "", self._root, None
                return text[:at], match, text[at + len(match.pattern) :]
        if last:
            self._node = self._root
        cut = len(text) - self._node.depth
        self._held = text[cut:]
        self._found_at -= cut
        return text[:cut], None, ""

    def _all(self, text: str, *, last: bool) -> list[Segment]:
        segments: list[Segment] = []
        while True:
            free, match, text = self.find(text, last=last)
            if free:
                segments.append(free)
            if match is None:
                return segments
            segments.append(match)


class StopMatcher:
    """Ends a streamed text exactly before the first stop text in it."""

    def __init__(self, stops: Sequence[str]) -> None:
        """Prepare for `stops`; with none, all text passes at once.

        Raises:
            RequestError: a stop text is empty.
        """
        if not all(stops):
            raise RequestError(
                "A stop text is empty.",
                field="stop",
                expected="text",
                found="",
                hint="Leave it out.",
            )
        self._scanner = PatternScanner(stops)
        self._stop: str | None = None

    @property
    def stop(self) -> str | None:
        """The stop text that ended the stream, or None."""
        return self._stop

    def feed(self, text: str) -> tuple[str, bool]:
        """Take more text; return the text that may be shown, and whether a stop text came.

        After a stop text nothing is shown any more.
        """
        if self._stop is None:
            return self._until_stop(self._scanner.feed(text)), self._stop is not None
        return "", True

    def flush(self) -> str:
        """Say that the text ends; return what was withheld.

        Where a stop text was complete and only a longer one that began earlier was waited for, it
        counts now: the result ends before it and `stop` names it.
        """
        return "" if self._stop is not None else self._until_stop(self._scanner.flush())

    def _until_stop(self, segments: Sequence[Segment]) -> str:
        shown = ""
        for segment in segments:
            if isinstance(segment, Match):
                self._stop = segment.pattern
                break
            shown += segment
        return shown
