"""Stop texts are found exactly, however the text is cut, and nothing else is lost or delayed."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from phyla.engine.stops import Match, PatternScanner, StopMatcher
from phyla.errors import RequestError

ALPHABET = "ab<"
PATTERNS = st.lists(st.text(ALPHABET, min_size=1, max_size=5), max_size=4)
PIECES = st.lists(st.text(ALPHABET, max_size=5), max_size=12)


def shown_by(stops: list[str], pieces: list[str]) -> tuple[str, str | None]:
    matcher = StopMatcher(stops)
    shown = "".join(matcher.feed(piece)[0] for piece in pieces)
    return shown + matcher.flush(), matcher.stop


def segments_of(patterns: list[str], pieces: list[str]) -> list[str | int]:
    """What the scanner says, with adjacent text joined and occurrences as their index."""
    scanner = PatternScanner(patterns)
    segments = [part for piece in pieces for part in scanner.feed(piece)] + scanner.flush()
    plain = [part.index if isinstance(part, Match) else part for part in segments]
    joined: list[str | int] = []
    for part in plain:
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] += part
        else:
            joined.append(part)
    return joined


def segments_by_search(patterns: list[str], text: str) -> list[str | int]:
    """The same by plain searching: the earliest start, then the shortest pattern."""
    found = [(text.find(p), len(p), i) for i, p in enumerate(patterns) if p in text]
    if not found:
        return [text] if text else []
    start, length, index = min(found)
    before: list[str | int] = [text[:start]] if start else []
    return [*before, index, *segments_by_search(patterns, text[start + length :])]


@given(PATTERNS, PIECES)
@example(["abab<", "ba"], ["ab", "ab"])
@example(["aab<", "ab", "b"], ["aab", "aab", "b"])
def test_every_cut_of_a_text_gives_the_segments_of_plain_searching(
    patterns: list[str], pieces: list[str]
) -> None:
    assert segments_of(patterns, pieces) == segments_by_search(patterns, "".join(pieces))


@given(PATTERNS, PIECES)
def test_the_shown_text_ends_before_the_earliest_stop_text(
    stops: list[str], pieces: list[str]
) -> None:
    text = "".join(pieces)
    cut = min((text.find(stop) for stop in stops if stop in text), default=len(text))
    shown, stop = shown_by(stops, pieces)
    assert shown == text[:cut]
    assert (stop is not None) == any(stop in text for stop in stops)


@given(PATTERNS, PIECES)
def test_only_what_may_become_a_pattern_is_withheld(patterns: list[str], pieces: list[str]) -> None:
    scanner = PatternScanner(patterns)
    text = ""
    for piece in pieces:
        found = any(isinstance(part, Match) for part in scanner.feed(piece))
        text = "" if found else text + piece
        if found:
            break
        longest = max(
            (n for p in patterns for n in range(len(p)) if text.endswith(p[:n])), default=0
        )
        assert scanner.held == text[len(text) - longest :]


def test_bug_39_a_stop_text_in_several_pieces_does_not_leak_its_beginning() -> None:
    matcher = StopMatcher(["DEFGHIJ"])
    fed = [matcher.feed(piece) for piece in ("abc", "DEF", "G", "HI", "J", "klm")]
    assert fed == [
        ("abc", False), ("", False), ("", False), ("", False), ("", True), ("", True),
    ]  # fmt: skip
    assert matcher.flush() == ""
    assert matcher.stop == "DEFGHIJ"


def test_bug_39_a_stop_text_that_ends_in_the_next_piece_is_cut_with_its_newline() -> None:
    assert shown_by(["\nUser:"], ["fine.", "\nUser", ":", " hello"]) == ("fine.", "\nUser:")


def test_bug_39_a_partial_stop_text_at_the_end_is_ordinary_text() -> None:
    assert shown_by(["</think>", "STOP"], ["answer ", "<th"]) == ("answer <th", None)


def test_bug_39_text_that_cannot_become_a_stop_text_passes_at_once() -> None:
    matcher = StopMatcher(["STOP", "\n\n"])
    assert [matcher.feed(piece)[0] for piece in ("a", "</think>", "S", "T.", "\n", "b")] == [
        "a", "</think>", "", "ST.", "", "\nb",
    ]  # fmt: skip


def test_a_longer_stop_text_that_began_earlier_is_waited_for() -> None:
    matcher = StopMatcher(["abcd", "bc"])
    assert matcher.feed("xabc") == ("x", False)
    assert matcher.feed("d") == ("", True)
    assert matcher.stop == "abcd"


def test_a_stop_text_that_was_complete_counts_when_the_text_ends() -> None:
    matcher = StopMatcher(["abcd", "bc"])
    assert matcher.feed("xabc") == ("x", False)
    assert matcher.flush() == "a"
    assert matcher.stop == "bc"


def test_without_stop_texts_everything_passes() -> None:
    matcher = StopMatcher([])
    assert matcher.feed("text") == ("text", False)
    assert matcher.flush() == ""


def test_an_empty_stop_text_is_refused() -> None:
    with pytest.raises(RequestError, match="stop text is empty") as caught:
        StopMatcher(["a", ""])
    assert caught.value.field == "stop"
