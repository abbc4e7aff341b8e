"""Writes the tokenizer.json that a GGUF file's metadata stands for.

Two kinds are known: `gpt2`, byte-level BPE, whose pre-tokenizer the metadata only names; and
`llama`, SentencePiece's BPE with byte fallback, whose merges follow from the scores.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, TypeAlias

from phyla.checkpoint.checkpoint import TokenizerData
from phyla.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from phyla.checkpoint.gguf_header import GgufHeader

Json: TypeAlias = dict[str, Any]


class _Kind(IntEnum):
    """llama.cpp's token types."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True)
class _PreTokenizer:
    """How a text is cut before BPE, as in the tokenizer.json that the name was given for.

    Attributes:
        steps: the pre-tokenizer's steps, in the `tokenizers` format.
        whole_words: a piece that is a token itself is taken without merging.
        composed: the text is brought to Unicode's composed form first.
        bos: a text starts with the beginning token unless the metadata says otherwise.
    """

    steps: tuple[Json, ...]
    whole_words: bool = False
    composed: bool = False
    bos: bool = False


def _split(pattern: str) -> Json:
    return {
        "type": "Split",
        "pattern": {"Regex": pattern},
        "behavior": "Isolated",
        "invert": False,
    }


def _bytes(*, split: bool) -> Json:
    return {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": split,
    }


def _words(letters: str, numbers: str, other: str) -> Json:
    """The pattern that GPT-4's tokenizer and its descendants share, up to three classes."""
    return _split(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
        rf"|[^\r\n\p{{L}}\p{{N}}]?{letters}+"
        rf"|{numbers}"
        rf"| ?{other}+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    )


_GPT2 = _PreTokenizer((_bytes(split=True),))
_LLAMA3 = _PreTokenizer(
    (_words(r"\p{L}", r"\p{N}{1,3}", r"[^\s\p{L}\p{N}]"), _bytes(split=False)),
    whole_words=True,
    bos=True,
)
_QWEN2 = _PreTokenizer(
    (_words(r"\p{L}", r"\p{N}", r"[^\s\p{L}\p{N}]"), _bytes(split=False)), composed=True
)
_PRE_TOKENIZERS = {
    # llama.cpp's stand-in for a file that does not say.
    "default": _PreTokenizer(
        (
            _split(r"[\p{P}\$\+<=>\^~\|]+"),
            _split(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"),
            _split(r"\p{N}+"),
            _split(r"[0-9][0-9][0-9]"),
            _bytes(split=False),
        )
    ),
    "gpt-2": _GPT2,
    "smollm": _PreTokenizer(
        ({"type": "Digits", "individual_digits": True}, _bytes(split=True)),
    ),
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "smaug-bpe": _PreTokenizer(_LLAMA3.steps),
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
    "qwen35": _PreTokenizer(
        (_words(r"[\p{L}\p{M}]", r"\p{N}", r"[^\s\p{L}\p{M}\p{N}]"), _bytes(split=False)),
        composed=True,
    ),
    "minicpm5": _PreTokenizer(
        (_split(r"\p{N}{1,3}"), _bytes(split=True)),
        whole_words=True,
    ),
}


def read_tokenizer(header: GgufHeader) -> TokenizerData:
    """Build a tokenizer's files from the metadata.

    Raises:
        CheckpointError: there is no vocabulary, or its kind or its pre-tokenizer is not known.
    """
    return _Vocabulary(header).data()


class _Vocabulary:
    """The `tokenizer.ggml` keys of a file."""

    def __init__(self, header: GgufHeader) -> None:
        self._file = header.path.name
        self._metadata: Mapping[str, Any] = header.metadata
        self._model: str = self._key("model")
        if self._model not in ("gpt2", "llama"):
            raise self._unknown("model", self._model, "gpt2 or llama", "kind of tokenizer")
        self._tokens: list[str] = self._list("tokens")
        count = len(self._tokens)
        self._types = self._list("token_type", default=[_Kind.NORMAL] * count)
        if len(self._types) != count:
            raise self._wrong("token_type", len(self._types), f"{count} types")

    def data(self) -> TokenizerData:
        pre = self._pre_tokenizer() if self._model == "gpt2" else None
        names = ("bos", "eos", "unknown", "padding", "seperator", "mask")
        spelled = {"unknown": "unk", "padding": "pad", "seperator": "sep"}
        special = {
            f"{spelled.get(name, name)}_token": token
            for name in names
            if (token := self._special(name)) is not None
        }
        add_bos = self._flag("add_bos_token", default=pre is None or pre.bos)
        add_eos = self._flag("add_eos_token", default=False)
        text = {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": self._added_tokens(),
            **(self._sentencepiece() if pre is None else self._byte_level(pre)),
            "post_processor": self._post_processor(add_bos=add_bos, add_eos=add_eos),
        }
        return TokenizerData(
            json=json.dumps(text, ensure_ascii=False),
            config={
                "add_bos_token": add_bos,
                "add_eos_token": add_eos,
                "clean_up_tokenization_spaces": False,
                **special,
            },
            special_tokens=special,
        )

    def _key(self, key: str) -> Any:
        found = self._metadata.get(f"tokenizer.ggml.{key}")
        if found is None:
            raise self._wrong(key, None, "present")
        return found

    def _list(self, key: str, *, default: list[Any] | None = None) -> list[Any]:
        found = default if default is not None and self._absent(key) else self._key(key)
        if not isinstance(found, list):
            raise self._wrong(key, found, "a list")
        return found

    def _absent(self, key: str) -> bool:
        return f"tokenizer.ggml.{key}" not in self._metadata

    def _flag(self, key: str, *, default: bool) -> bool:
        return bool(self._metadata.get(f"tokenizer.ggml.{key}", default))

    def _wrong(self, key: str, found: object, expected: str) -> CheckpointError:
        name = f"tokenizer.ggml.{key}"
        return CheckpointError(
            f"{self._file}: the metadata key {name!r} should be {expected}, found {found!r}.",
            file=self._file,
            field=name,
            found=found,
            expected=expected,
            hint="Convert the model again with a current llama.cpp.",
        )

    def _unknown(self, key: str, found: object, expected: str, what: str) -> CheckpointError:
        return CheckpointError(
            f"{self._file}: the {what} {found!r} is not known.",
            file=self._file,
            field=f"tokenizer.ggml.{key}",
            found=found,
            expected=expected,
            hint="Use the model's folder in the Hugging Face layout instead.",
        )

    def _pre_tokenizer(self) -> _PreTokenizer:
        name = "default" if self._absent("pre") else self._key("pre")
        if name not in _PRE_TOKENIZERS:
            raise self._unknown("pre", name, ", ".join(_PRE_TOKENIZERS), "pre-tokenizer")
        return _PRE_TOKENIZERS[name]

    def _special(self, name: str) -> str | None:
        index = self._metadata.get(f"tokenizer.ggml.{name}_token_id")
        if index is None:
            return None
        if not isinstance(index, int) or not 0 <= index < len(self._tokens):
            raise self._wrong(f"{name}_token_id", index, f"below {len(self._tokens)}")
        return self._tokens[index]

    def _added_tokens(self) -> list[Json]:
        """Tokens that are matched in the text before it is cut; those of control are special."""
        added = (_Kind.CONTROL, _Kind.USER_DEFINED, _Kind.UNKNOWN)
        return [
            {
                "id": index,
                "content": token,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": kind != _Kind.USER_DEFINED,
            }
            for index, (token, kind) in enumerate(zip(self._tokens, self._types, strict=True))
            if kind in added and token
        ]

    def _vocab(self) -> dict[str, int]:
        return {
            token: index
            for index, (token, kind) in enumerate(zip(self._tokens, self._types, strict=True))
            if kind != _Kind.UNUSED
        }

    def _byte_level(self, pre: _PreTokenizer) -> Json:
        merges = [merge.split(" ", 1) for merge in self._list("merges")]
        return {
            "normalizer": {"type": "NFC"} if pre.composed else None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": list(pre.steps)},
            "decoder": _bytes(split=True),
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": None,
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": False,
                "byte_fallback": False,
                "ignore_merges": pre.whole_words,
                "vocab": self._vocab(),
                "merges": merges,
            },
        }

    def _sentencepiece(self) -> Json:
        space = "▁"
        prefixed = self._flag("add_space_prefix", default=True)
        normalizers: list[Json] = [
            {"type": "Replace", "pattern": {"String": " "}, "content": space}
        ]
        decoders: list[Json] = [
            {"type": "Replace", "pattern": {"String": space}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
        ]
        if prefixed:
            normalizers.insert(0, {"type": "Prepend", "prepend": space})
            decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
        return {
            "normalizer": {"type": "Sequence", "normalizers": normalizers},
            "pre_tokenizer": None,
            "decoder": {"type": "Sequence", "decoders": decoders},
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": self._special("unknown"),
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": True,
                "byte_fallback": True,
                "ignore_merges": False,
                "vocab": self._vocab(),
                "merges": self._merges_from_scores(),
            },
        }

    def _merges_from_scores(self) -> list[tuple[str, str]]:
        """Every way to make a token of two others, the token with the best score first.

        SentencePiece merges the pair whose result scores best, wherever its parts came from.
        """
        scores = self._list("scores")
        if len(scores) != len(self._tokens):
            raise self._wrong("scores", len(scores), f"{len(self._tokens)} scores")
        ids = {
            token: index
            for index, (token, kind) in enumerate(zip(self._tokens, self._types, strict=True))
            if kind in (_Kind.NORMAL, _Kind.USER_DEFINED)
        }
        ways: list[tuple[float, int, int, tuple[str, str]]] = []
        for token, index in ids.items():
            for cut in range(1, len(token)):
                left, right = token[:cut], token[cut:]
                if left in ids and right in ids:
                    ways.append((-scores[index], ids[left], ids[right], (left, right)))
        ways.sort()
        return [pair for *_, pair in ways]

    def _post_processor(self, *, add_bos: bool, add_eos: bool) -> Json | None:
        before = self._special("bos") if add_bos else None
        after = self._special("eos") if add_eos else None
        if before is None and after is None:
            return None

        def wrap(kind: int, text: str) -> list[Json]:
            first = [{"SpecialToken": {"id": before, "type_id": kind}}] if before else []
            last = [{"SpecialToken": {"id": after, "type_id": kind}}] if after else []
            return [*first, {"Sequence": {"id": text, "type_id": kind}}, *last]

        return {
            "type": "TemplateProcessing",
            "single": wrap(0, "A"),
            "pair": wrap(0, "A") + wrap(1, "B"),
            "special_tokens": {
                token: {"id": token, "ids": [self._tokens.index(token)], "tokens": [token]}
                for token in (before, after)
                if token is not None
            },
        }
