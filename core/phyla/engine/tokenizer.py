"""Text to token ids and back, by the rules of tokenizer.json. Knows no model and no template."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

import tokenizers

from phyla.errors import CheckpointError, RequestError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from phyla.checkpoint import TokenizerData

# The tokens that a tokenizer config names are control tokens, even where tokenizer.json lists them
# as ordinary vocabulary.
_CONTROL = (
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token",
)  # fmt: skip


class Tokenizer:
    """A checkpoint's tokenizer.

    Added tokens are of two sorts. *Special* ones (`<|im_end|>`, `<bos>`) steer the model and never
    appear in decoded text unless asked for; the others (`<think>`, `<tool_call>` in Qwen3's) are
    text like any other.
    """

    def __init__(self, data: TokenizerData) -> None:
        """Build it from a checkpoint's files.

        Raises:
            CheckpointError: tokenizer.json cannot be read.
        """
        try:
            backend = tokenizers.Tokenizer.from_str(data.json)
        except Exception as error:  # noqa: BLE001 (the library raises nothing more precise)
            raise CheckpointError(
                f"tokenizer.json cannot be read: {error}.",
                file="tokenizer.json",
                found=data.json[:40],
                expected="a tokenizer of the `tokenizers` library",
                hint="Fetch the file again, or upgrade `tokenizers` if it is newer than yours.",
            ) from None
        # A file may carry the limits of the run that trained it; a prompt must not be cut by them.
        backend.no_truncation()
        backend.no_padding()
        control = {data.special_tokens[name] for name in _CONTROL if name in data.special_tokens}
        added = backend.get_added_tokens_decoder()
        known = {token.content for token in added.values() if token.special}
        missing = [
            tokenizers.AddedToken(text, special=True, normalized=False)
            for text in sorted(control - known)
            if backend.token_to_id(text) is not None
        ]
        if missing:
            backend.add_special_tokens(missing)
            added = backend.get_added_tokens_decoder()
        self._backend = backend
        # Not the number of tokens: some vocabularies leave numbers out.
        self._vocab_size = max(backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1
        self._special_ids = frozenset(i for i, token in added.items() if token.special)
        self._special_tokens = MappingProxyType(dict(data.special_tokens))

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Turn text into ids.

        Text that spells an added token, special or not, becomes that one token: a rendered chat
        template relies on it, and so text that a user typed can do the same.

        Args:
            text: what to encode.
            add_special_tokens: put the tokens around it that tokenizer.json asks for, such as
                `<bos>`. A rendered chat template has written its own already.

        Raises:
            RequestError: the text holds half of a surrogate pair, which is no character.
        """
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise RequestError(
                f"The text holds {text[error.start]!r} at position {error.start}, which is no "
                "character.",
                field="text",
                expected="Unicode text",
                found=text[error.start],
                hint="Decode the text's source as UTF-8 or UTF-16.",
            ) from None
        return self._backend.encode(text, add_special_tokens=add_special_tokens).ids

    def decode(self, ids: Iterable[int], *, keep_special: bool = False) -> str:
        """Turn ids into text, as tokenizer.json's decoder does.

        Bytes that are no UTF-8 become U+FFFD. Ids outside the vocabulary, which a padded embedding
        can produce, stand for no text. The `clean_up_tokenization_spaces` of a tokenizer config is
        not applied: it would delete spaces that the model wrote.

        Args:
            ids: the ids.
            keep_special: write special tokens out as text, rather than skip them.
        """
        inside = [index for index in ids if 0 <= index < 2**32]
        return self._backend.decode(inside, skip_special_tokens=not keep_special)

    def token_id(self, text: str) -> int | None:
        """The id of the token that is spelled exactly so in the vocabulary, or None."""
        return self._backend.token_to_id(text)

    def spelling(self, index: int) -> str | None:
        """A token as the vocabulary spells it (`Ġhello`, `▁hello`, `<0xE4>`); None outside it."""
        return self._backend.id_to_token(index) if 0 <= index < 2**32 else None

    def token_text(self, index: int) -> str:
        """A token as it reads inside a text (` hello`), special ones written out.

        Part of a character reads as U+FFFD, an id outside the vocabulary as nothing. For reports:
        such texts, joined, are not the text of a sequence.
        """
        # A decoder may treat the first token of a text differently, so another stands before it.
        before = self.token_id("a")
        if before is None:
            return self.decode([index], keep_special=True)
        return self.decode([before, index], keep_special=True)[len(self.decode([before])) :]

    @property
    def vocab_size(self) -> int:
        """One more than the highest id, added tokens included; the model may have more rows.

        An id below it that the vocabulary leaves out stands for no text.
        """
        return self._vocab_size

    @property
    def special_ids(self) -> frozenset[int]:
        """The ids of special tokens."""
        return self._special_ids

    @property
    def special_tokens(self) -> Mapping[str, str]:
        """`bos_token`, `eos_token` and so on, as texts."""
        return self._special_tokens

    @property
    def bos_id(self) -> int | None:
        """The id of `bos_token`, or None."""
        return self._named("bos_token")

    @property
    def eos_id(self) -> int | None:
        """The id of `eos_token`, or None; the ids that end a turn are `eos.eos_ids`."""
        return self._named("eos_token")

    @property
    def decoder(self) -> bytes | None:
        """The decoder of tokenizer.json as JSON, or None where it has none."""
        decoder = self._backend.decoder
        return None if decoder is None else decoder.__getstate__()

    def _named(self, name: str) -> int | None:
        text = self._special_tokens.get(name)
        return None if text is None else self.token_id(text)
