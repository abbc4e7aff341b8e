"""Reads a reply from its token ids: detokenizes them and tells markers from their spelling.

Ties `Detokenizer` to `Classifier`, and counts the tokens of reasoning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from phyla.engine.classifier import Classifier, markers
from phyla.engine.detokenize import Detokenizer

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from phyla.engine.classifier import SpanEvent
    from phyla.engine.tokenizer import Tokenizer
    from phyla.family import Dialect
    from phyla.messages import Tool


def single_tokens(tokenizer: Tokenizer, texts: Iterable[str]) -> dict[int, str]:
    """The ids of those texts that always are one token, whatever stands around them."""
    found: dict[int, str] = {}
    for text in texts:
        index = tokenizer.token_id(text)
        if index is None:
            continue
        if index in tokenizer.encode(f"a{text}a", add_special_tokens=False):
            found[index] = text
    return found


class MarkedDetokenizer(Detokenizer):
    """A detokenizer that says where markers stand.

    Tokens that it is told to keep are text, special or not; other special tokens give none.
    """

    def __init__(
        self, tokenizer: Tokenizer, *, marks: dict[int, str], keep: Collection[int] = ()
    ) -> None:
        """Start a text.

        Args:
            tokenizer: the vocabulary.
            marks: the markers, by id.
            keep: further ids to keep.
        """
        super().__init__(tokenizer)
        self._marks = marks
        self._special_ids = self._special_ids - {*marks, *keep}
        self._kept_special = tokenizer.special_ids & {*marks, *keep}

    def read(self, token_id: int) -> tuple[str, str | None]:
        """Take the next id; return the text before it that is certain now, and the marker it is.

        For an id that is no marker the text includes its own.
        """
        mark = self._marks.get(token_id)
        if self._stages is None:
            return self._read_whole(token_id, mark)
        text = self.add(token_id)
        if mark is None or not text.endswith(mark):
            return text, None
        return text[: len(text) - len(mark)], mark

    def _read_whole(self, token_id: int, mark: str | None) -> tuple[str, str | None]:
        """For a decoder that cannot be streamed: the text between two markers comes at its end."""
        if mark is None and token_id not in self._kept_special:
            return self.add(token_id), None
        text = self.finish()
        self._ids.clear()
        if mark is not None:
            return text, mark
        return text + (self._tokenizer.spelling(token_id) or ""), None


class ReplyReader:
    """Reads one reply, id by id; what it found is in `classifier`."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        dialect: Dialect,
        *,
        tools: Sequence[Tool] | None = None,
        stops: Sequence[str] = (),
        in_reasoning: bool = False,
        call_ids: str = "call",
        seed: str = "",
    ) -> None:
        """Start a reply; the arguments are `Classifier`'s."""
        marks = single_tokens(tokenizer, markers(dialect, calls=tools is not None))
        # A call that nobody asked for is text, so what it is written with is kept then too.
        written = (*markers(dialect, calls=True), *dialect.call_syntax)
        self._detokenizer = MarkedDetokenizer(
            tokenizer, marks=marks, keep=single_tokens(tokenizer, written)
        )
        self._reasoning_tokens = 0
        self._undecided_tokens = 0  # tokens of reasoning, unless they turn out to close it
        self.classifier = Classifier(
            dialect,
            tools=tools,
            stops=stops,
            in_reasoning=in_reasoning,
            marks=frozenset(marks.values()),
            call_ids=call_ids,
            seed=seed,
        )

    @property
    def reasoning_tokens(self) -> int:
        """How many tokens came inside reasoning; those that opened or closed it do not count."""
        return self._reasoning_tokens

    def add(self, token_id: int) -> list[SpanEvent]:
        """Take the next id; return what became certain."""
        classifier = self.classifier
        inside = classifier.reasoning_open
        text, mark = self._detokenizer.read(token_id)
        events = classifier.feed(text) if text else []
        if mark is not None:
            events += classifier.mark(mark)
        self._count(inside and classifier.reasoning_open)
        return events

    def _count(self, inside: bool) -> None:
        """Count a token; one whose text may belong to what closes reasoning waits for that."""
        if not inside:
            self._undecided_tokens = 0
            return
        self._undecided_tokens += 1
        certain = max(0, self._undecided_tokens - self.classifier.undecided)
        self._reasoning_tokens += certain
        self._undecided_tokens -= certain

    def finish(self) -> list[SpanEvent]:
        """Say that the output has ended; return all that was withheld."""
        self._reasoning_tokens += self._undecided_tokens
        self._undecided_tokens = 0
        events = self.classifier.feed(self._detokenizer.finish())
        return events + self.classifier.finish()
