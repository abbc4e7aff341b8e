"""Token ids to text as they come, equal to the decoding of all of them at once. Knows no model.

A decoder in tokenizer.json is a chain of rules over the tokens' spellings. Each rule here is a
stage that takes pieces and gives pieces, and holds back only what a later token may still change:

- `ByteLevel`: characters stand for bytes (GPT-2's table). The bytes of an unfinished character are
  held. What is no UTF-8 becomes U+FFFD, one for each maximal ill-formed part (Unicode 16, 3.9,
  "Substitution of Maximal Subparts"), as soon as it is certain.
- `ByteFallback`: `<0xAB>` is a byte. The rule of the `tokenizers` library is one of all or nothing:
  a run of byte tokens is text if the whole run is UTF-8, and otherwise U+FFFD for every one of its
  bytes, well-formed characters included. So a run is held until it ends or breaks.
- `Replace`, `Metaspace`, `Strip`: spellings of the space, and the first space of a text.

A chain with a rule that can change text of any age (`WordPiece`, `BPEDecoder`, `CTC`, a regular
expression) is not streamed: its text comes at the end.
"""

from __future__ import annotations

import json
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

from phyla.engine.stops import Match, PatternScanner

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from phyla.engine.tokenizer import Tokenizer


class _Stage(Protocol):
    def push(self, piece: str) -> Iterable[str]: ...

    def finish(self) -> Iterable[str]: ...


class Detokenizer:
    """Turns one sequence's ids into text, in constant amortized time per id.

    The texts that `add` and `finish` return are, joined, `tokenizer.decode` of all ids: special
    tokens and ids outside the vocabulary give none.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Start a text."""
        self._tokenizer = tokenizer
        self._special_ids = tokenizer.special_ids
        self._stages = _stages(tokenizer.decoder)
        self._ids: list[int] = []  # kept only where the text cannot be streamed

    def add(self, token_id: int) -> str:
        """Take the next id; return the text that is certain by now and was not returned before."""
        if self._stages is None:
            self._ids.append(token_id)
            return ""
        piece = self._tokenizer.spelling(token_id)
        if piece is None or token_id in self._special_ids:
            return ""
        pieces: Iterable[str] = (piece,)
        for stage in self._stages:
            pieces = _pushed(stage, pieces)
        return "".join(pieces)

    def finish(self) -> str:
        """Say that no more ids come; return the text that was held back."""
        if self._stages is None:
            return self._tokenizer.decode(self._ids)
        pieces: Iterable[str] = ()
        for stage in self._stages:
            pieces = [*_pushed(stage, pieces), *stage.finish()]
        return "".join(pieces)


def _pushed(stage: _Stage, pieces: Iterable[str]) -> list[str]:
    return list(chain.from_iterable(stage.push(piece) for piece in pieces))


def _stages(decoder: bytes | None) -> list[_Stage] | None:
    """The stages of a decoder, or None for one that cannot be streamed."""
    if decoder is None:
        return [_SpaceBetween()]
    stages: list[_Stage] = []
    whole = False  # whether the rules so far join all tokens to one text
    for rule in _rules(json.loads(decoder)):
        stage: _Stage
        match rule:
            case {"type": "Fuse"}:
                whole = True
                continue
            case {"type": "ByteLevel"} if not whole:
                stage, whole = _ByteLevel(), True
            case {"type": "ByteFallback"} if not whole:
                stage = _ByteFallback()
            case {"type": "Metaspace", "replacement": mark, "prepend_scheme": scheme} if not whole:
                stage = _Metaspace(mark, drop_first=scheme != "never")
            case {"type": "Replace", "pattern": {"String": old}, "content": new} if old:
                stage = _ReplaceInText(old, new) if whole else _Replace(old, new)
            case {"type": "Strip", "content": char, "start": start, "stop": 0}:
                stage = _Strip(char, start, each=not whole)
            case _:
                return None
        stages.append(stage)
    return stages


def _rules(decoder: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    if decoder["type"] != "Sequence":
        return [decoder]
    return [rule for part in decoder["decoders"] for rule in _rules(part)]


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's table: printable Latin-1 stands for itself, the rest for U+0100 onwards, in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in set(printable)]
    shifted = {chr(0x100 + place): byte for place, byte in enumerate(others)}
    return {chr(byte): byte for byte in printable} | shifted


_BYTE_OF = _byte_alphabet()


def _spelled_bytes(piece: str) -> bytes:
    """A byte-level token's bytes; one that is not spelled in the alphabet is an added token."""
    try:
        return bytes([_BYTE_OF[char] for char in piece])
    except KeyError:
        return piece.encode()


def _unfinished(data: bytes) -> int:
    """How many bytes at the end of `data` are the beginning of a character."""
    for size in range(1, min(3, len(data)) + 1):
        lead = data[-size]
        if lead < 0x80:
            return 0
        if lead < 0xC0:
            continue
        length = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
        if not 0xC2 <= lead <= 0xF4 or size >= length:
            return 0
        # These leads narrow the second byte, against overlong forms, surrogates and > U+10FFFF.
        low = {0xE0: 0xA0, 0xF0: 0x90}.get(lead, 0x80)
        high = {0xED: 0x9F, 0xF4: 0x8F}.get(lead, 0xBF)
        return size if size == 1 or low <= data[1 - size] <= high else 0
    return 0


class _ByteLevel:
    def __init__(self) -> None:
        self._held = b""

    def push(self, piece: str) -> Iterable[str]:
        data = self._held + _spelled_bytes(piece)
        cut = len(data) - _unfinished(data)
        self._held = data[cut:]
        return (data[:cut].decode(errors="replace"),)

    def finish(self) -> Iterable[str]:
        held, self._held = self._held, b""
        return (held.decode(errors="replace"),)


def _fallback_byte(piece: str) -> int | None:
    if len(piece) != 6 or not (piece.startswith("<0x") and piece.endswith(">")):
        return None
    digits = piece[3:5].removeprefix("+")  # Rust's parser of integers takes a sign
    if not all(char in "0123456789abcdefABCDEF" for char in digits):
        return None
    return int(digits, 16)


class _ByteFallback:
    def __init__(self) -> None:
        self._run = bytearray()
        self._tail = b""  # the run's unfinished character
        self._broken = False

    def push(self, piece: str) -> Iterable[str]:
        byte = _fallback_byte(piece)
        if byte is None:
            return (*self.finish(), piece)
        if self._broken:
            return ("\ufffd",)
        self._run.append(byte)
        tail = self._tail + bytes([byte])
        if _unfinished(tail) == len(tail):
            self._tail = tail
            return ()
        self._tail = b""
        try:
            tail.decode()
        except UnicodeDecodeError:
            self._broken = True
            return self._replaced()
        return ()

    def finish(self) -> Iterable[str]:
        pieces = self._replaced() if self._tail else (self._run.decode(),) if self._run else ()
        self._run, self._tail, self._broken = bytearray(), b"", False
        return pieces

    def _replaced(self) -> tuple[str, ...]:
        count = len(self._run)
        self._run = bytearray()
        return ("\ufffd",) * count


class _Metaspace:
    def __init__(self, mark: str, *, drop_first: bool) -> None:
        self._mark, self._drop = mark, drop_first

    def push(self, piece: str) -> Iterable[str]:
        space, self._drop = "" if self._drop else " ", False
        return (piece.replace(self._mark, space),)

    def finish(self) -> Iterable[str]:
        return ()


class _Replace:
    """Replaces within each token."""

    def __init__(self, old: str, new: str) -> None:
        self._old, self._new = old, new

    def push(self, piece: str) -> Iterable[str]:
        return (piece.replace(self._old, self._new),)

    def finish(self) -> Iterable[str]:
        return ()


class _ReplaceInText:
    """Replaces within the whole text, across tokens."""

    def __init__(self, old: str, new: str) -> None:
        self._scanner, self._new = PatternScanner([old]), new

    def push(self, piece: str) -> Iterable[str]:
        return [self._new if isinstance(x, Match) else x for x in self._scanner.feed(piece)]

    def finish(self) -> Iterable[str]:
        return [self._new if isinstance(x, Match) else x for x in self._scanner.flush()]


class _Strip:
    """Takes up to `count` of a character from the beginning of each token, or of the text."""

    def __init__(self, char: str, count: int, *, each: bool) -> None:
        self._char, self._count, self._each = char, count, each
        self._left = count

    def push(self, piece: str) -> Iterable[str]:
        if self._each:
            self._left = self._count
        while self._left and piece.startswith(self._char):
            piece = piece[1:]
            self._left -= 1
        if piece:
            self._left = 0
        return (piece,)

    def finish(self) -> Iterable[str]:
        return ()


class _SpaceBetween:
    """What the library does without a decoder: tokens as they are spelled, a space between them."""

    def __init__(self) -> None:
        self._between = ""

    def push(self, piece: str) -> Iterable[str]:
        between, self._between = self._between, " "
        return (between + piece,)

    def finish(self) -> Iterable[str]:
        return ()
