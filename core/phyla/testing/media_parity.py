"""A conversation with pictures, a video and a sound through the engine, beside a reference.

What the parity tests of families that read media share: the conversation, a checkpoint that can
show it, and a suite. Needs the `parity` extra. A family's test module has a module-scoped fixture
`mixed`, made by `beside`, and a class that derives from `MediaParity`.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
import pytest

from phyla.engine.engine import load
from phyla.messages import Audio, Image, Text, Video
from phyla.testing.agreement import assert_same_tokens
from phyla.testing.forward import TOLERANCE, assert_close
from phyla.testing.sight import picture, tone
from phyla.testing.tokenizer import BYTE_TOKENS, tokenizer_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from phyla.engine.engine import Engine
    from phyla.engine.media import MediaItem
    from phyla.events import Reply
    from phyla.prompt import Prompt

    # The logits [T, V] of token ids with these items in them, in one pass of the reference.
    Reference = Callable[[Sequence[int], Sequence[MediaItem]], NDArray[np.float32]]

TOKENS = 32  # of a reply
_EMBEDDED = 0.07  # what embeddings are multiplied by
_ROOM = 2048  # tokens that the conversation and its reply may have


def show_media(
    folder: Path,
    *,
    chat_template: str,
    marks: Sequence[str],
    preprocessing: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """Give a checkpoint that is there already what it needs to show media in a prompt.

    Its embeddings are made small as well: at random weights the last token's own would outweigh all
    else where the head is tied to them, and every reply would be that token again and again.

    Args:
        folder: as `write_files` wrote it.
        chat_template: takes the place of the one that it has.
        marks: texts that the tokenizer has a token for; see `tokenizer_json`.
        preprocessing: what the files that say how media are prepared hold, by file name.
    """
    path = folder / "tokenizer_config.json"
    known = json.loads(path.read_text(encoding="utf-8"))
    files = {path.name: {**known, "chat_template": chat_template}, **(preprocessing or {})}
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    (folder / "tokenizer.json").write_text(tokenizer_json(marks), encoding="utf-8")
    weights = str(folder / "model.safetensors")
    tensors = mx.load(weights)
    assert isinstance(tensors, dict)
    (name,) = [
        name for name in tensors if name.endswith((".embed_tokens.weight", ".embeddings.weight"))
    ]
    tensors[name] = tensors[name] * _EMBEDDED
    mx.save_safetensors(weights, tensors, metadata={"format": "pt"})


def resize_rows_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Pillow, and what calls it, resize pictures along rows first.

    So torchvision does it, which transformers uses where it is installed, and so Pillow did before
    version 13. That takes the columns first where it is less work, and as bytes are rounded and cut
    in between, edges come out otherwise, by up to 17 levels.
    """
    from PIL import Image as pillow

    resize = pillow.Image.resize

    def in_two_steps(
        self: pillow.Image,
        size: tuple[int, int],
        resample: int | None = None,
        box: None = None,
        reducing_gap: None = None,
    ) -> pillow.Image:
        assert box is reducing_gap is None
        how = pillow.Resampling(pillow.Resampling.BICUBIC if resample is None else resample)
        return resize(resize(self, (size[0], self.height), how), size, how)

    monkeypatch.setattr(pillow.Image, "resize", in_two_steps)


def conversation(engine: Engine) -> list[dict[str, Any]]:
    """Text, two pictures of odd sizes, a video of odd length, a sound, text; as far as it reads."""
    able = engine.capabilities
    parts: list[object] = [
        Text(text="Look: "),
        Image(source=picture(1, height=43, width=57)),
        Text(text=" and "),
        Image(source=picture(2, height=37, width=211)),
    ]
    if able.video:
        frames = np.stack([picture(seed, height=29, width=46) for seed in range(3, 8)])
        parts += [Text(text=" then "), Video(source=frames, source_fps=2.0)]
    if able.audio:
        sound = tone(440, seconds=0.47) * np.linspace(0.2, 1, int(0.47 * 16000), dtype=np.float32)
        parts += [Text(text=" with "), Audio(source=sound, rate=16000)]
    parts.append(Text(text=". What is it?"))
    return [{"role": "user", "content": parts}]


@dataclass(frozen=True)
class Mixed:
    """The conversation in an engine, and a reference that takes the same ids and items.

    Attributes:
        engine: the checkpoint's.
        prompt: the conversation as the engine encodes it.
        reference: see `Reference`.
    """

    engine: Engine
    prompt: Prompt
    reference: Reference

    def generated(self, *, prompt_cache: bool = False) -> Reply:
        """A greedy reply of bytes.

        A mark of media in a reply would be media to the reference, which sees it in one pass with
        the prompt; what the tokenizer does not know is never chosen anyway.
        """
        marks = range(BYTE_TOKENS, self.engine.tokenizer.vocab_size)
        options = {
            "temperature": 0, "max_tokens": TOKENS, "ignore_eos": True, "top_logprobs": 10,
            "suppress_tokens": list(marks),
        }  # fmt: skip
        return self.engine.generate(self.prompt, options=options, prompt_cache=prompt_cache)

    @cached_property
    def cold(self) -> Reply:
        """A reply to the prompt, read in chunks as usual, with nothing cached."""
        return self.generated()

    @property
    def reply(self) -> tuple[int, ...]:
        """Its tokens."""
        return tuple(self.cold.tokens)

    @cached_property
    def expected(self) -> NDArray[np.float32]:
        """The reference's logits `[T, V]` of the prompt and that reply."""
        items = [placed.item for placed in self.prompt.media]
        return self.reference((*self.prompt.ids, *self.reply), items)


@contextmanager
def beside(folder: Path, reference: Reference) -> Iterator[Mixed]:
    """Load a checkpoint and put the conversation to it.

    Args:
        folder: shows media, see `show_media`.
        reference: the same checkpoint.
    """
    with load(folder, dtype="float32", max_context=_ROOM) as engine:
        yield Mixed(engine, engine.encode(conversation(engine)), reference)


class MediaParity:
    """The suite; subclass it next to a `mixed` fixture and mark the module `parity`."""

    def test_logits_of_a_mixed_prompt_and_its_reply_equal_the_references(
        self, mixed: Mixed
    ) -> None:
        whole = replace(mixed.prompt, ids=(*mixed.prompt.ids, *mixed.reply))
        what = f"{mixed.engine.name}: a prompt with media, and its reply"
        assert_close(mixed.engine.trace(whole).logits, mixed.expected, what=what)

    def test_greedy_tokens_after_a_mixed_prompt_equal_the_references(self, mixed: Mixed) -> None:
        """Each is what the reference likes best after the prompt and those before it.

        So its own greedy reply is the same, token by token; as models are causal, one pass over
        all tells what it would choose at each place.
        """
        start = len(mixed.prompt.ids) - 1
        choices = mixed.expected[start:-1, :BYTE_TOKENS].argmax(axis=-1)
        assert len(mixed.reply) == TOKENS
        what = f"{mixed.engine.name}: a greedy reply to a prompt with media"
        assert_same_tokens(mixed.reply, choices.tolist(), what=what)

    def test_probabilities_of_a_reply_equal_the_references(self, mixed: Mixed) -> None:
        known = mixed.engine.tokenizer.vocab_size  # rows behind those are no tokens
        rows = mixed.expected[len(mixed.prompt.ids) - 1 : -1, :known].astype(np.float64)
        expected = rows - np.log(np.exp(rows).sum(axis=-1, keepdims=True))
        assert mixed.cold.logprobs is not None
        for found, row in zip(mixed.cold.logprobs, expected, strict=True):
            ids, values = zip(*found.top, strict=True)
            # Both a logit and the sum of all may differ.
            most = 2 * TOLERANCE * np.ptp(mixed.expected)
            assert np.abs(row[list(ids)] - values).max() < most

    @pytest.mark.parametrize("chunk", [7, 64])
    def test_a_mixed_prompt_read_in_chunks_has_the_same_reply(
        self, mixed: Mixed, chunk: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(mixed.engine.machine.loaded.scheduler, "chunk", chunk)
        what = f"{mixed.engine.name}: a prompt with media in chunks of {chunk}"
        assert_same_tokens(mixed.generated().tokens, mixed.reply, what=what)

    def test_a_mixed_prompt_that_is_remembered_has_the_same_reply(self, mixed: Mixed) -> None:
        mixed.engine.cache.clear()
        first = mixed.generated(prompt_cache=True)
        again = mixed.generated(prompt_cache=True)
        assert tuple(first.tokens) == tuple(again.tokens) == mixed.reply
        assert again.usage.cached_tokens >= mixed.prompt.media[-1].stop
