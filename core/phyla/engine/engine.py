"""The engine: one loaded model, and the stateless chat API on it. Safe to use from any thread."""

from __future__ import annotations

import logging
import time
import warnings
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from phyla.caching import CacheLimits
from phyla.checkpoint import Checkpoint, open_checkpoint
from phyla.engine.encoder import Encoder
from phyla.engine.generation import Generation, Request
from phyla.engine.loading import Blueprint, plan
from phyla.engine.machine import Limits, Machine
from phyla.engine.media import MediaDesk
from phyla.engine.prompt_cache import PromptCache
from phyla.engine.resolve import check_token_ids, resolve
from phyla.engine.session import Session, Surroundings
from phyla.engine.strand import Strand
from phyla.engine.stream import Stream
from phyla.engine.trace import Trace, trace
from phyla.engine.turn import Settled
from phyla.errors import ContextOverflowError, MemoryLimitError, RequestError
from phyla.kv_quantization import read_kv_quantization
from phyla.media import MediaLimits
from phyla.options import Options, read_options
from phyla.prompt import Prompt, read_ids
from phyla.registry import discover
from phyla.validation import check_text, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from typing_extensions import Self

    from phyla.caching import Breakpoint
    from phyla.engine.tokenizer import Tokenizer
    from phyla.events import Reply
    from phyla.family import ThinkingLike
    from phyla.hooks import Observer
    from phyla.kv_quantization import KVQuantizationLike
    from phyla.messages import Medium, MessagesLike, ToolLike
    from phyla.modality import Capabilities
    from phyla.options import OptionsLike
    from phyla.registry import Registry

_LOG = logging.getLogger("phyla")

Priority = Literal["interactive", "background"]
_PRIORITIES = ("interactive", "background")

# What a context is when neither config.json nor the caller says.
_UNKNOWN_CONTEXT = 4096


def load(
    source: str | Path | Checkpoint,
    *,
    family: str | None = None,
    revision: str | None = None,
    offline: bool | None = None,
    dtype: str | None = None,
    max_context: int | None = None,
    memory_limit: int | None = None,
    cache: CacheLimits | None = None,
    kv_bits: KVQuantizationLike = None,
    media: MediaLimits | None = None,
    options: OptionsLike = None,
    registry: Registry | None = None,
    clock: Callable[[], datetime] = datetime.now,
) -> Engine:
    """Load a model.

    Args:
        source: a folder in Hugging Face layout, a Hub id, a `.gguf` file, `demo`, or a checkpoint
            that is open already.
        family: the family's name, when more than one could take the checkpoint.
        revision: a branch, tag or commit on the Hub.
        offline: use only what is on disk.
        dtype: how to hold weights and activations, instead of the rule that `phyla inspect` shows:
            `float32`, `bfloat16`, `float16`, or `stored`.
        max_context: how many tokens a sequence may hold; the config's number when absent.
        memory_limit: bytes that the sequences may take together, running and remembered; half of
            what is free when absent.
        cache: how much is remembered of requests that ended.
        kv_bits: keep keys and values quantized: a number of bits, one for keys and one for values,
            or a `KVQuantization`; as they are computed when absent.
        media: which images, audio and videos may be read; http(s) URLs only if it says so.
        options: defaults for every request of this engine.
        registry: the families to choose from; all installed ones when absent.
        clock: what templates that print the date call.

    Raises:
        CheckpointError: the files are missing or broken.
        UnsupportedModelError: no family takes them, or more than one does.
        PluginError: the family that would take them is broken.
        RequestError: an option is out of range.
    """
    defaults = read_options(options)
    _check_positive("max_context", max_context, "tokens")
    _check_positive("memory_limit", memory_limit, "bytes")
    quantized = read_kv_quantization(kv_bits)
    if cache is not None and not isinstance(cache, CacheLimits):
        raise RequestError(
            f"cache should be phyla.CacheLimits; found {shown(cache)}.",
            field="cache",
            expected="phyla.CacheLimits",
            found=cache,
        )
    if media is not None and not isinstance(media, MediaLimits):
        raise RequestError(
            f"media should be phyla.MediaLimits; found {shown(media)}.",
            field="media",
            expected="phyla.MediaLimits",
            found=media,
        )
    if isinstance(source, Checkpoint):
        checkpoint = source
    else:
        checkpoint = open_checkpoint(source, revision=revision, offline=offline)
    registry = registry or discover()
    blueprint = plan(checkpoint, registry.family_for(checkpoint, family), dtype=dtype)
    check_token_ids(
        resolve(defaults, Options(), {}),
        min(blueprint.config.vocab_size, blueprint.tokenizer.vocab_size),
    )
    limits = Limits(
        context=max_context or blueprint.config.context_length or _UNKNOWN_CONTEXT,
        memory=memory_limit,
        cache=cache or CacheLimits(),
        quantized=quantized,
        media=media or MediaLimits(),
    )
    return Engine(blueprint, limits=limits, defaults=defaults, registry=registry, clock=clock)


class Engine:
    """A loaded model; `phyla.load` makes it. A context manager: closing it frees the memory."""

    def __init__(
        self,
        blueprint: Blueprint,
        *,
        limits: Limits,
        defaults: Options,
        registry: Registry,
        clock: Callable[[], datetime] = datetime.now,
    ) -> None:
        self._blueprint = blueprint
        self._context = limits.context
        self._defaults = defaults
        self._registry = registry
        self._observers = list(registry.observers())
        desk = MediaDesk(blueprint.media, blueprint.tokenizer, limits.media)
        self._machine = Machine(blueprint, limits)
        texts = (*blueprint.dialect.unsaid, *desk.placeholders)
        said = (blueprint.tokenizer.token_id(text) for text in dict.fromkeys(texts))
        self._unsaid = tuple(token for token in said if token is not None)
        allocation = self._machine.loaded.runtime.allocation
        self._encoder = Encoder(blueprint, clock, media=desk, bounded=not allocation.cuttable)

    # What it is.

    @property
    def name(self) -> str:
        """What the checkpoint is called."""
        return self._blueprint.checkpoint.name

    @property
    def family(self) -> str:
        """The family that runs it."""
        return self._blueprint.family.name

    @property
    def tokenizer(self) -> Tokenizer:
        """Text to ids and back."""
        return self._blueprint.tokenizer

    @property
    def context(self) -> int:
        """How many tokens a prompt and its reply may have together."""
        return self._context

    @property
    def eos(self) -> frozenset[int]:
        """The ids that end a turn."""
        return self._blueprint.eos

    @property
    def capabilities(self) -> Capabilities:
        """What it reads, which is what the checkpoint holds the parts for."""
        return self._encoder.media.capabilities

    @property
    def memory_used(self) -> int:
        """Bytes of it that are spoken for by what runs, by sessions and by the prompt cache."""
        loaded = self._machine.loaded
        return self._machine.call(lambda: loaded.scheduler.running + loaded.pool.nbytes)

    @property
    def machine(self) -> Machine:
        """The model on its thread; private, and here for the conformance suite."""
        return self._machine

    # What it does.

    def encode(
        self,
        messages: MessagesLike,
        *,
        tools: Sequence[ToolLike] | None = None,
        tool_choice: str = "auto",
        thinking: ThinkingLike = None,
        breakpoints: Sequence[Breakpoint] = (),
    ) -> Prompt:
        """Render a conversation with the checkpoint's template and tokenize it.

        Args:
            messages: the conversation; a string is one user message.
            tools: what the model may call: `Tool` values, OpenAI dictionaries, Python functions.
            tool_choice: `auto`; `none`, as if there were no tools; `required`, the reply is a call;
                or the name of the tool that it must call.
            thinking: turns reasoning on or off, or names an effort; None leaves it to the template.
            breakpoints: places up to which the prompt cache is to keep the conversation for a while.

        Raises:
            TemplateError: there is no template, or it refuses the conversation.
            EmptyInputError: there is no message.
            UnsupportedModalityError: there is an image, audio or video that the model cannot read.
            MediaError: one of them cannot be opened; what is wrong with its content is found when
                the prompt is run.
            RequestError: a message or tool is malformed, or the model cannot think or call tools in
                the way that is asked for.
        """
        return self._encoder.encode(
            messages,
            tools=tools,
            tool_choice=tool_choice,
            thinking=thinking,
            breakpoints=breakpoints,
        )

    def encode_text(self, text: str, *, media: Sequence[Medium | Mapping[str, Any]] = ()) -> Prompt:
        """Tokenize plain text for a model without a chat template; adds the tokenizer's BOS.

        Args:
            text: as it is; it holds the model's own placeholder for each of `media`.
            media: `Image`, `Audio` and `Video` values, in order, or content parts that say so.

        Raises:
            TemplateError: the text has not as many placeholders, or in another order.
            PhylaError: as `encode` raises it for media.
        """
        return self._encoder.encode_text(text, media)

    def stream(
        self,
        messages: MessagesLike | Prompt,
        *,
        tools: Sequence[ToolLike] | None = None,
        tool_choice: str = "auto",
        thinking: ThinkingLike = None,
        options: OptionsLike = None,
        breakpoints: Sequence[Breakpoint] = (),
        prompt_cache: bool = True,
        namespace: str = "",
        priority: Priority = "interactive",
    ) -> Stream:
        """Start a reply and return its handle: iterate it for events, or wait for `result()`.

        Everything about the request is checked before this returns.

        Args:
            messages: as `encode` takes them, or what it returned.
            tools: likewise.
            tool_choice: likewise.
            thinking: likewise.
            breakpoints: likewise.
            options: how the reply is generated.
            prompt_cache: whether to use and fill the prompt cache; False runs the prompt cold.
            namespace: whose part of the prompt cache to use; no request sees another's part.
            priority: `background` gives way to others wherever there is a queue.

        Raises:
            ContextOverflowError: the prompt leaves no room for a reply.
            MemoryLimitError: it would need more memory than all sequences may take.
            PhylaError: as `encode` and `phyla.load` raise them for messages and options.
        """
        if isinstance(messages, Prompt):
            _refuse_twice(
                tools=tools,
                tool_choice=tool_choice,
                thinking=thinking,
                breakpoints=breakpoints or None,
            )
        else:
            messages = self.encode(
                messages,
                tools=tools,
                tool_choice=tool_choice,
                thinking=thinking,
                breakpoints=breakpoints,
            )
        return self._start(
            messages, options, prompt_cache=prompt_cache, namespace=namespace, priority=priority
        )

    def chat(
        self,
        messages: MessagesLike,
        *,
        tools: Sequence[ToolLike] | None = None,
        tool_choice: str = "auto",
        thinking: ThinkingLike = None,
        options: OptionsLike = None,
        breakpoints: Sequence[Breakpoint] = (),
        prompt_cache: bool = True,
        namespace: str = "",
        priority: Priority = "interactive",
    ) -> Reply:
        """Answer a conversation; `stream(...).result()`."""
        return self.stream(
            messages,
            tools=tools,
            tool_choice=tool_choice,
            thinking=thinking,
            options=options,
            breakpoints=breakpoints,
            prompt_cache=prompt_cache,
            namespace=namespace,
            priority=priority,
        ).result()

    def generate(
        self,
        ids: Sequence[int] | Prompt,
        *,
        options: OptionsLike = None,
        prompt_cache: bool = True,
        namespace: str = "",
        priority: Priority = "interactive",
    ) -> Reply:
        """Continue token ids, as they are: no template, nothing added."""
        return self._start(
            ids if isinstance(ids, Prompt) else Prompt(ids=tuple(ids)),
            options,
            prompt_cache=prompt_cache,
            namespace=namespace,
            priority=priority,
        ).result()

    def session(
        self,
        *,
        max_seq_len: int | None = None,
        n_keep: int | None = None,
        options: OptionsLike = None,
    ) -> Session:
        """Begin an empty sequence that can be appended to and gone on with, step by step.

        Args:
            max_seq_len: how many tokens it may hold; the context when absent.
            n_keep: when it is full while a reply is made, keep so many tokens of its beginning,
                forget half of the others, and go on; None ends the reply there.
            options: defaults for its replies.

        Raises:
            RequestError: a number is out of range, or an option is.
        """
        longest = self._context
        _check_positive("max_seq_len", max_seq_len, "tokens")
        length = longest if max_seq_len is None else max_seq_len
        if length > longest:
            raise RequestError(
                f"max_seq_len should be at most the context, {longest}; found {length}.",
                field="max_seq_len",
                expected=f"at most {longest}",
                found=length,
            )
        if n_keep is not None and (type(n_keep) is not int or not 0 <= n_keep < length - 1):
            raise RequestError(
                f"n_keep should be at least 0 and less than max_seq_len - 1, {length - 1}; found "
                f"{shown(n_keep)}.",
                field="n_keep",
                expected=f"0 to {length - 2}",
                found=n_keep,
            )
        defaults = read_options(options)
        self._settle(defaults)
        loaded = self._machine.loaded

        def make() -> Strand:
            strand = Strand(loaded.runtime, max_seq_len=length, n_keep=n_keep)
            loaded.scheduler.hold(strand)
            return strand

        strand = self._machine.call(make)
        if n_keep is not None and not strand.can_shift:
            warnings.warn(
                "n_keep does nothing: this model cannot forget tokens from the middle.",
                stacklevel=2,
            )
        observers = self._observers
        surroundings = Surroundings(
            self,
            self._machine,
            self._encoder,
            self._settle,
            lambda reply: _tell(observers, reply),
        )
        return Session(surroundings, strand, options=defaults)

    @property
    def cache(self) -> PromptCache:
        """What is remembered of earlier prompts."""
        return PromptCache(self._encoder, self._machine)

    @property
    def memory_limit(self) -> int:
        """Bytes that the sequences may take together, running and remembered."""
        return self._machine.loaded.memory

    def trace(self, ids: Sequence[int] | Prompt, *, extent: int | None = None) -> Trace:
        """The logits of every position and each layer's hidden states, for a prompt run whole.

        `extent` is how many tokens the sequence may reach, the prompt's own number when absent; a
        model with LongRoPE chooses its factors by it, in a reply by the prompt and `max_tokens`.
        """
        runtime = self._machine.loaded.runtime
        prompt = read_ids(ids, runtime.vocab_size)
        self._encoder.media.check(prompt.ids, prompt.media)
        self._check_room(prompt, least=0)
        for placed in prompt.media:
            placed.item.prepare()
        return self._machine.call(lambda: trace(runtime, prompt, extent))

    def close(self) -> None:
        """Cancel what is running, end the engine's thread, and free the model."""
        self._machine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _start(
        self,
        prompt: Prompt,
        options: OptionsLike,
        *,
        prompt_cache: bool,
        namespace: str,
        priority: Priority,
    ) -> Stream:
        loaded = self._machine.loaded
        runtime = loaded.runtime
        read_ids(prompt, runtime.vocab_size)
        self._encoder.media.check(prompt.ids, prompt.media)
        self._check_room(prompt, least=1)
        if priority not in _PRIORITIES:
            raise RequestError(
                f"priority should be interactive or background; found {shown(priority)}.",
                field="priority",
                expected=_PRIORITIES,
                found=priority,
            )
        check_text("namespace", namespace)
        if not isinstance(prompt_cache, bool):
            raise RequestError(
                f"prompt_cache should be true or false; found {shown(prompt_cache)}.",
                field="prompt_cache",
                expected="true or false",
                found=prompt_cache,
            )
        settled = self._settle(read_options(options))
        request = Request(
            prompt=prompt,
            options=settled.options,
            processors=settled.processors,
            submitted=time.perf_counter(),
            cached=prompt_cache,
            namespace=namespace,
            background=priority == "background",
        )
        channel = self._machine.channel()
        observers = self._observers
        task = Generation(
            runtime,
            loaded.pool,
            request,
            channel,
            lambda reply: _tell(observers, reply),
            room=loaded.room,
        )
        if task.needed > loaded.memory:
            raise MemoryLimitError(needed=task.needed, limit=loaded.memory)
        for placed in prompt.media:
            placed.item.prepare()
        self._machine.run(task)
        return Stream(channel, self)

    def _settle(self, options: Options) -> Settled:
        """The options of a request, with nothing left open, and what changes its logits."""
        wanted = resolve(options, self._defaults, self._blueprint.checkpoint.generation_config)
        runtime = self._machine.loaded.runtime
        check_token_ids(wanted, min(runtime.vocab_size, runtime.known_ids))
        if self._unsaid:
            wanted = replace(wanted, suppress_tokens=(*wanted.suppress_tokens, *self._unsaid))
        processors = self._registry.logits_processors(options.over(self._defaults))
        return Settled(wanted, processors)

    def _check_room(self, prompt: Prompt, *, least: int) -> None:
        limit = self._context - least
        if len(prompt.ids) > limit:
            raise ContextOverflowError(
                limit=limit,
                excess=len(prompt.ids) - limit,
                configured=self._blueprint.config.context_length,
                media=sum(placed.item.plan.count for placed in prompt.media),
            )


def _refuse_twice(
    *,
    tools: Sequence[ToolLike] | None,
    tool_choice: str,
    thinking: ThinkingLike,
    breakpoints: Sequence[Breakpoint] | None,
) -> None:
    """What a prompt was encoded with cannot be said again with other values."""
    given = {"tools": tools, "tool_choice": tool_choice, "thinking": thinking}
    given["breakpoints"] = breakpoints
    for field, value in given.items():
        if value not in (None, "auto"):
            raise RequestError(
                f"{field} was settled when the prompt was encoded.",
                field=field,
                found=value,
                hint="Pass it to `encode`.",
            )


def _tell(observers: list[Observer], reply: Reply) -> None:
    """Tell observers of a reply; one that fails is not asked again, since no reply needs it."""
    for observer in list(observers):
        try:
            observer.finished(reply)
        except BaseException:  # noqa: BLE001 (whatever an observer may raise)
            observers.remove(observer)
            _LOG.exception("An observer (%s) failed and is set aside.", type(observer).__name__)


def _check_positive(field: str, found: object, unit: str) -> None:
    if found is not None and (type(found) is not int or found < 1):
        raise RequestError(
            f"{field} should be a positive number of {unit}, found {found!r}.",
            field=field,
            expected="a positive integer",
            found=found,
        )
