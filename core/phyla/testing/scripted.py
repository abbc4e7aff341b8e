"""A tiny model with random weights that says what a test wants it to say, token by token.

The script acts on the logits alone, inside the model: the engine samples, penalizes, stops and
forces tokens as it does with any model, and nothing makes it wait.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import mlx.core as mx

from phyla.engine.engine import Engine, load
from phyla.family import Family, Model, Rename
from phyla.hooks import hookimpl
from phyla.prompt import Prompt
from phyla.registry import make_registry
from phyla.testing.files import CHATML
from phyla.testing.tiny import write_checkpoint
from phyla.testing.tokenizer import MARKS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from typing_extensions import Self

    from phyla.engine.stream import Stream
    from phyla.events import Reply
    from phyla.family import CacheKind, Step, ThinkingLike
    from phyla.messages import MessagesLike, ToolLike
    from phyla.options import OptionsLike

# Added to the logit of the scripted token; what a model says by itself is nowhere near it.
_CERTAIN = 10_000.0


class Script:
    """What a model says in one reply: a token for each place behind the prompt."""

    def __init__(self) -> None:
        self._start = 0
        self._ids: tuple[int, ...] = ()

    def write(self, start: int, ids: Sequence[int]) -> None:
        """After `start` tokens say `ids`, and then whatever the weights say."""
        self._start, self._ids = start, tuple(ids)

    def apply(self, logits: mx.array, positions: mx.array) -> mx.array:
        """The logits `[..., V]` after the tokens at `positions` `[...]`, as the script has them."""
        if not self._ids:
            return logits
        places = positions - (self._start - 1)
        inside = (places >= 0) & (places < len(self._ids))
        wanted = mx.array(self._ids)[mx.clip(places, 0, len(self._ids) - 1)]
        chosen = mx.arange(logits.shape[-1]) == wanted[..., None]
        return logits + _CERTAIN * (chosen & inside[..., None])


class _ScriptedModel(Model):
    def __init__(self, inner: Model, script: Script) -> None:
        super().__init__()
        self.inner = inner
        self._script = script
        self._positions = mx.zeros((1, 0), dtype=mx.int32)

    def cache_kinds(self) -> Sequence[CacheKind]:
        return self.inner.cache_kinds()

    def embed(self, step: Step) -> mx.array:
        return self.inner.embed(step)

    def __call__(self, hidden: mx.array, step: Step, caches: Sequence[Any]) -> mx.array:
        self._positions = step.positions
        return self.inner(hidden, step, caches)

    def logits(self, hidden: mx.array) -> mx.array:
        logits = self.inner.logits(hidden)
        # The engine asks for all positions or, with one axis less, for the last.
        positions = self._positions if hidden.ndim == 3 else self._positions[:, -1]
        return self._script.apply(logits, positions)


class _Plugin:
    def __init__(self, family: Family) -> None:
        self._family = family

    @hookimpl
    def phyla_provide_families(self) -> Iterable[Family]:
        return [self._family]


def scripted(family: Family, script: Script) -> Family:
    """The family with models that follow the script."""
    return replace(
        family,
        model=lambda config: _ScriptedModel(family.model(config), script),
        weights=lambda config, checkpoint: (
            *family.weights(config, checkpoint),
            Rename(r"(.*)", r"inner.\1"),
        ),
    )


class ScriptedEngine:
    """An engine on a tiny checkpoint with random weights, whose replies are written beforehand.

    Its tokens are bytes and marks, so every text can be said. A reply is given as text, in which
    the tokenizer's marks become their tokens, or as ids, such as the bytes of a mark that a model
    merely spells out. A context manager.

    Attributes:
        engine: the engine. What it is asked directly, it answers by the last script.
    """

    def __init__(
        self,
        folder: Path,
        config: Mapping[str, Any],
        family: Family,
        *,
        chat_template: str = CHATML,
        marks: Sequence[str] = MARKS,
        special_marks: bool = False,
        end: str = "<|im_end|>",
        modules: Iterable[object] = (),
    ) -> None:
        """Write the checkpoint and load it.

        Args:
            folder: where to write it.
            config: the content of config.json.
            family: runs it; give it a dialect with `dataclasses.replace`.
            chat_template: the chat template.
            marks: texts that the tokenizer has a token for.
            special_marks: whether those are special tokens.
            end: the token that ends a reply which is given as text.
            modules: further plugins.

        Raises:
            PhylaError: as `write_checkpoint` and `phyla.load` raise it.
        """
        plain = make_registry(modules=[_Plugin(family)])
        write_checkpoint(
            folder,
            config,
            chat_template=chat_template,
            marks=marks,
            special_marks=special_marks,
            registry=plain,
        )
        self._script = Script()
        self._end = end
        registry = make_registry(modules=[_Plugin(scripted(family, self._script)), *modules])
        self.engine: Engine = load(folder, registry=registry)

    def ids(self, text: str) -> list[int]:
        """The ids of a text; each mark in it is its token."""
        return self.engine.tokenizer.encode(text, add_special_tokens=False)

    def stream(
        self,
        says: str | Sequence[int] | None,
        messages: MessagesLike | Prompt = "Hi",
        *,
        tools: Sequence[ToolLike] | None = None,
        tool_choice: str = "auto",
        thinking: ThinkingLike = None,
        options: OptionsLike = None,
    ) -> Stream:
        """`Engine.stream`, with a reply that says this; wait for one before you start the next.

        After ids that do not end the turn the weights say what they like; with None, from the
        beginning.
        """
        if not isinstance(messages, Prompt):
            messages = self.engine.encode(
                messages, tools=tools, tool_choice=tool_choice, thinking=thinking
            )
        ids = self.ids(says + self._end) if isinstance(says, str) else says
        self._script.write(len(messages.ids), ids or ())
        return self.engine.stream(messages, options=options)

    def chat(
        self,
        says: str | Sequence[int] | None,
        messages: MessagesLike | Prompt = "Hi",
        *,
        tools: Sequence[ToolLike] | None = None,
        tool_choice: str = "auto",
        thinking: ThinkingLike = None,
        options: OptionsLike = None,
    ) -> Reply:
        """`Engine.chat`, with a reply that says this."""
        return self.stream(
            says,
            messages,
            tools=tools,
            tool_choice=tool_choice,
            thinking=thinking,
            options=options,
        ).result()

    def close(self) -> None:
        """Close the engine."""
        self.engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
