"""The engine: one loaded model, and the stateless chat API on it. Safe to use from any thread."""

from __future__ import annotations

import logging
import time
import weakref
from datetime import datetime
from typing import TYPE_CHECKING

import mlx.core as mx

from phyla.backend import on_cpu
from phyla.checkpoint import Checkpoint, open_checkpoint
from phyla.engine.generation import Request, Runtime, run
from phyla.engine.history import told
from phyla.engine.loading import Blueprint, build, plan
from phyla.engine.resolve import check_token_ids, resolve
from phyla.engine.stream import Channel, Stream
from phyla.engine.template import ChatTemplate
from phyla.engine.tool_choice import call_opening
from phyla.engine.trace import Trace, trace
from phyla.engine.worker import Worker
from phyla.errors import BusyError, ContextOverflowError, RequestError
from phyla.messages import read_messages, read_tools
from phyla.options import Options, read_options
from phyla.prompt import Prompt, read_ids
from phyla.registry import discover

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import TracebackType

    from typing_extensions import Self

    from phyla.engine.tokenizer import Tokenizer
    from phyla.events import Reply
    from phyla.family import ThinkingLike
    from phyla.hooks import Observer
    from phyla.messages import MessagesLike, ToolLike
    from phyla.options import OptionsLike
    from phyla.registry import Registry

_LOG = logging.getLogger("phyla")

# Prompt tokens fed at once. On a CPU a chunk is the time between two looks at the cancel flag, and
# more than this gains nothing there.
_CPU_CHUNK = 512
_GPU_CHUNK = 2048

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
    if max_context is not None and (type(max_context) is not int or max_context < 1):
        raise RequestError(
            f"max_context should be a positive number of tokens, found {max_context!r}.",
            field="max_context",
            expected="a positive integer",
            found=max_context,
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
    return Engine(
        blueprint, defaults=defaults, max_context=max_context, registry=registry, clock=clock
    )


class Engine:
    """A loaded model; `phyla.load` makes it. A context manager: closing it frees the memory."""

    def __init__(
        self,
        blueprint: Blueprint,
        *,
        defaults: Options,
        max_context: int | None = None,
        registry: Registry,
        clock: Callable[[], datetime] = datetime.now,
    ) -> None:
        self._blueprint = blueprint
        self._defaults = defaults
        self._registry = registry
        self._template = ChatTemplate(
            blueprint.checkpoint.chat_templates, blueprint.tokenizer.special_tokens, clock
        )
        self._observers = list(registry.observers())
        self._worker = Worker(f"phyla {blueprint.checkpoint.name}")
        self._open: weakref.WeakSet[Channel] = weakref.WeakSet()
        # Runs when the engine is closed or dropped, and before the interpreter ends.
        self._shut_down = weakref.finalize(self, _shut_down, self._worker, self._open)
        self._context = max_context or blueprint.config.context_length or _UNKNOWN_CONTEXT
        self._loaded: Runtime | None = None
        try:
            context = self._context
            self._loaded = self._worker.submit(lambda: _prepare(blueprint, context)).result()
        except BaseException:
            self.close()
            raise

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

    # What it does.

    def encode(
        self,
        messages: MessagesLike,
        *,
        tools: Sequence[ToolLike] | None = None,
        tool_choice: str = "auto",
        thinking: ThinkingLike = None,
    ) -> Prompt:
        """Render a conversation with the checkpoint's template and tokenize it.

        Args:
            messages: the conversation; a string is one user message.
            tools: what the model may call: `Tool` values, OpenAI dictionaries, Python functions.
            tool_choice: `auto`; `none`, as if there were no tools; `required`, the reply is a call;
                or the name of the tool that it must call.
            thinking: turns reasoning on or off, or names an effort; None leaves it to the template.

        Raises:
            TemplateError: there is no template, or it refuses the conversation.
            EmptyInputError: there is no message.
            RequestError: a message or tool is malformed, or the model cannot think or call tools in
                the way that is asked for.
        """
        dialect = self._blueprint.dialect
        offered = read_tools(tools)
        if tool_choice == "none":
            offered = ()
        opening = call_opening(dialect, offered, tool_choice)
        setting = dialect.thinking_setting(thinking)
        text = self._template.render(
            told(read_messages(messages), dialect, instruction=setting.instruction),
            offered,
            variables=setting.variables,
        )
        opens_reasoning = dialect.opens_reasoning(text)
        if opening and opens_reasoning and dialect.reasoning is not None:
            # A reply that must be a call has no time to think.
            text += dialect.reasoning.ending
            opens_reasoning = False
        text += opening
        return Prompt(
            ids=tuple(self.tokenizer.encode(text, add_special_tokens=False)),
            text=text,
            opens_reasoning=opens_reasoning,
            tools=offered or None,
            seed=opening,
        )

    def encode_text(self, text: str) -> Prompt:
        """Tokenize plain text for a model without a chat template; adds the tokenizer's BOS."""
        return Prompt(ids=tuple(self.tokenizer.encode(text, add_special_tokens=True)), text=text)

    def stream(
        self,
        messages: MessagesLike | Prompt,
        *,
        tools: Sequence[ToolLike] | None = None,
        tool_choice: str = "auto",
        thinking: ThinkingLike = None,
        options: OptionsLike = None,
    ) -> Stream:
        """Start a reply and return its handle: iterate it for events, or wait for `result()`.

        Everything about the request is checked before this returns.

        Raises:
            ContextOverflowError: the prompt leaves no room for a reply.
            PhylaError: as `encode` and `phyla.load` raise them for messages and options.
        """
        if isinstance(messages, Prompt):
            _refuse_twice(tools=tools, tool_choice=tool_choice, thinking=thinking)
        else:
            messages = self.encode(
                messages, tools=tools, tool_choice=tool_choice, thinking=thinking
            )
        return self._start(messages, options)

    def chat(
        self,
        messages: MessagesLike,
        *,
        tools: Sequence[ToolLike] | None = None,
        tool_choice: str = "auto",
        thinking: ThinkingLike = None,
        options: OptionsLike = None,
    ) -> Reply:
        """Answer a conversation; `stream(...).result()`."""
        return self.stream(
            messages, tools=tools, tool_choice=tool_choice, thinking=thinking, options=options
        ).result()

    def generate(self, ids: Sequence[int] | Prompt, *, options: OptionsLike = None) -> Reply:
        """Continue token ids, as they are: no template, nothing added."""
        prompt = ids if isinstance(ids, Prompt) else read_ids(ids, self._runtime.vocab_size)
        return self._start(prompt, options).result()

    def trace(self, ids: Sequence[int] | Prompt, *, extent: int | None = None) -> Trace:
        """The logits of every position and each layer's hidden states, for a prompt run whole.

        `extent` is how many tokens the sequence may reach, the prompt's own number when absent; a
        model with LongRoPE chooses its factors by it, in a reply by the prompt and `max_tokens`.
        """
        prompt = read_ids(ids, self._runtime.vocab_size)
        self._check_room(prompt, least=0)
        runtime = self._runtime
        return self._worker.submit(lambda: trace(runtime, prompt, extent)).result()

    def close(self) -> None:
        """Cancel what is running, end the engine's thread, and free the model."""
        self._shut_down()
        self._loaded = None

    @property
    def _runtime(self) -> Runtime:
        if self._loaded is None:
            raise BusyError("The engine is closed.", hint="Load the model again.")
        return self._loaded

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _start(self, prompt: Prompt, options: OptionsLike) -> Stream:
        runtime = self._runtime
        read_ids(prompt, runtime.vocab_size)
        self._check_room(prompt, least=1)
        wanted = resolve(
            read_options(options), self._defaults, self._blueprint.checkpoint.generation_config
        )
        check_token_ids(wanted, min(runtime.vocab_size, self.tokenizer.vocab_size))
        request = Request(
            prompt=prompt,
            options=wanted,
            processors=self._registry.logits_processors(read_options(options).over(self._defaults)),
            submitted=time.perf_counter(),
        )
        channel = Channel()
        self._open.add(channel)
        observers = self._observers

        def job() -> None:
            try:
                reply = run(runtime, request, channel.put, channel.cancelled.is_set)
            except BaseException as error:  # noqa: BLE001 (the reader of the stream gets it)
                channel.close(error)
            else:
                channel.close()
                _tell(observers, reply)

        self._worker.submit(job)
        return Stream(channel, self)

    def _check_room(self, prompt: Prompt, *, least: int) -> None:
        limit = self._runtime.context - least
        if len(prompt.ids) > limit:
            raise ContextOverflowError(
                limit=limit,
                excess=len(prompt.ids) - limit,
                configured=self._blueprint.config.context_length,
            )


def _refuse_twice(
    *, tools: Sequence[ToolLike] | None, tool_choice: str, thinking: ThinkingLike
) -> None:
    """What a prompt was encoded with cannot be said again with other values."""
    given = {"tools": tools, "tool_choice": tool_choice, "thinking": thinking}
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
        except Exception:  # noqa: BLE001 (whatever an observer may raise)
            observers.remove(observer)
            _LOG.exception("An observer (%s) failed and is set aside.", type(observer).__name__)


def _shut_down(worker: Worker, channels: weakref.WeakSet[Channel]) -> None:
    for channel in list(channels):
        channel.cancelled.set()
    worker.close()


def _prepare(blueprint: Blueprint, context: int) -> Runtime:
    """Build the model and what its requests share; on the engine's thread."""
    if mx.metal.is_available():
        # Without it macOS may page the weights out between two requests.
        mx.set_wired_limit(int(mx.device_info()["max_recommended_working_set_size"]))
    model = build(blueprint)
    cpu = on_cpu()
    return Runtime(
        model=model,
        tokenizer=blueprint.tokenizer,
        dtype=blueprint.precision.activations,
        context=context,
        vocab_size=blueprint.config.vocab_size,
        dialect=blueprint.dialect,
        eos=blueprint.eos,
        chunk=_CPU_CHUNK if cpu else _GPU_CHUNK,
        run_ahead=not cpu,
    )
