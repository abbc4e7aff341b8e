"""A program with an engine that says what a test wants, and one with a real tiny model."""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pytest
import typer
from typer.testing import CliRunner

from phyla.cli.app import make_app
from phyla.cli.input_lines import InputLines
from phyla.cli.shell import ModelChoice, Shell
from phyla.errors import CancelledError
from phyla.events import (
    Event,
    Finished,
    FinishReason,
    ReasoningDelta,
    Reply,
    TextDelta,
    Timings,
    ToolCallDelta,
    ToolCallError,
    ToolCallFailed,
    ToolCallFinished,
    ToolCallStarted,
    Usage,
)
from phyla.prompt import Prompt
from phyla.registry import Registry, make_registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path
    from typing import NoReturn

    from typer.testing import Result

    from phyla.engine.engine import Engine
    from phyla.messages import Medium, Message, Tool, ToolCall
    from phyla.options import Options


@dataclass
class Script:
    """How the fake engine answers one request.

    `interrupts` Ctrl-C presses come after the first piece of text; a reply ends there if it is
    cancelled. `error` is raised in place of an answer. Calls and failed calls come last.
    """

    pieces: Sequence[str] = ("Hello", " there")
    reasoning: str = ""
    calls: Sequence[ToolCall] = ()
    failures: Sequence[ToolCallError] = ()
    interrupts: int = 0
    error: Exception | None = None


class FakeStream:
    def __init__(self, script: Script) -> None:
        self._script = script
        self._cancelled = False

    def __iter__(self) -> Iterator[Event]:
        script, said = self._script, []
        if script.error is not None:
            raise script.error
        if script.reasoning:
            yield ReasoningDelta(script.reasoning)
        if not script.pieces:
            self._press()
            raise CancelledError("cancelled while the prompt was read")
        for piece in script.pieces:
            said.append(piece)
            yield TextDelta(piece)
            self._press()
            if self._cancelled:
                break
        calls = () if self._cancelled else tuple(script.calls)
        for index, call in enumerate(calls):
            yield ToolCallStarted(index, call.id, call.name)
            yield ToolCallDelta(index, json.dumps(call.arguments))
            yield ToolCallFinished(index, call)
        for failure in script.failures:
            yield ToolCallFailed(None, failure)
        reason: FinishReason = "tool_calls" if calls else "stop"
        yield Finished(
            Reply(
                text="".join(said),
                reasoning=script.reasoning,
                tool_calls=calls,
                tool_call_errors=tuple(script.failures),
                finish_reason="cancelled" if self._cancelled else reason,
                usage=Usage(
                    prompt_tokens=7,
                    completion_tokens=len(said),
                    reasoning_tokens=len(script.reasoning),
                ),
                timings=Timings(queue=0.0, prefill=0.5, decode=0.25),
                seed=42,
            )
        )

    def _press(self) -> None:
        for _ in range(self._script.interrupts):
            signal.raise_signal(signal.SIGINT)

    def cancel(self) -> None:
        self._cancelled = True

    def __enter__(self) -> FakeStream:
        return self

    def __exit__(self, *error: object) -> None:
        self.cancel()


@dataclass
class Asked:
    """One request, as it reached the engine."""

    messages: list[tuple[str, str]]
    prompt: Prompt | None
    thinking: bool | str | None
    tools: list[str] | None
    tool_choice: str
    options: dict[str, Any]
    history: list[Message]


class FakeEngine:
    """Answers by scripts. Its chat template shows tools unless `shows_tools` is off."""

    name = "fake"
    family = "none"

    def __init__(self, scripts: Sequence[Script]) -> None:
        self.scripts = list(scripts)
        self.asked: list[Asked] = []
        self.closed = False
        self.shows_tools = True
        self.encode_error: Exception | None = None
        self.encoded: list[Medium] = []

    def stream(
        self,
        messages: Sequence[Message] | Prompt,
        *,
        tools: Sequence[Tool] | None = None,
        tool_choice: str = "auto",
        thinking: bool | str | None = None,
        options: Options,
    ) -> FakeStream:
        prompt = messages if isinstance(messages, Prompt) else None
        history = [] if isinstance(messages, Prompt) else list(messages)
        self.asked.append(
            Asked(
                messages=[(each.role, each.text) for each in history],
                prompt=prompt,
                thinking=thinking,
                tools=None if tools is None else [tool.name for tool in tools],
                tool_choice=tool_choice,
                options=options.model_dump(exclude_none=True),
                history=history,
            )
        )
        return FakeStream(self.scripts.pop(0) if self.scripts else Script())

    def encode(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Tool] | None = None,
        tool_choice: str = "auto",
        thinking: bool | str | None = None,
    ) -> Prompt:
        if self.encode_error is not None:
            raise self.encode_error
        shown = [tool.name for tool in tools or ()] if self.shows_tools else []
        seed = "" if tool_choice in ("auto", "none") else f"<call {tool_choice}>"
        words = [*shown, *(message.text for message in messages), str(thinking)]
        return Prompt(ids=(1, 2, 3), text=" ".join(words) + seed, seed=seed)

    def encode_text(self, text: str, *, media: Sequence[Medium] = ()) -> Prompt:
        self.encoded = list(media)
        return Prompt(ids=(1, 2, 3), text=text)

    def __enter__(self) -> FakeEngine:
        return self

    def __exit__(self, *error: object) -> None:
        self.closed = True


@dataclass
class Program:
    """`phyla` with a fake engine."""

    engine: FakeEngine
    registry: Registry = field(default_factory=make_registry)
    choices: list[ModelChoice] = field(default_factory=list)

    def __call__(self, *arguments: str, stdin: str = "") -> Result:
        shell = Shell(registry=self.registry, open_engine=self._open, leave=_leave)
        return invoke(shell, *arguments, stdin=stdin)

    def _open(self, choice: ModelChoice, registry: Registry) -> Engine:
        self.choices.append(choice)
        return cast("Engine", self.engine)


def _leave() -> NoReturn:
    # The real one would end the test's process.
    raise typer.Exit(130)


def invoke(shell: Shell, *arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(make_app(shell), arguments, input=stdin, obj=shell)


@pytest.fixture
def script() -> type[Script]:
    """How a fake engine answers."""
    return Script


@pytest.fixture
def program() -> Callable[..., Program]:
    """Makes a program whose engine answers its requests by these scripts, then by the plain one."""

    def make(*scripts: Script, modules: Sequence[object] = ()) -> Program:
        return Program(FakeEngine(scripts), make_registry(modules=modules))

    return make


class Keyboard(InputLines):
    """Lines that are read as if somebody typed them."""

    def __init__(self, **options: object) -> None:
        self.keyboard = True

    def read(self, prompt: str) -> str | None:
        line = sys.stdin.readline()
        return line.strip() if line else None


@pytest.fixture
def keyboard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes `phyla chat` take what is piped in for typed."""
    monkeypatch.setattr("phyla.cli.talk.InputLines", Keyboard)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny Llama."""
    from phyla.testing import write_checkpoint

    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 264,
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5,
        "max_position_embeddings": 512, "rope_theta": 10000.0, "tie_word_embeddings": False,
    }  # fmt: skip
    return write_checkpoint(
        tmp_path_factory.mktemp("tiny") / "tiny-llama",
        config,
        quantize={"bits": 4, "group_size": 32},
        generation_config={"temperature": 0.3, "eos_token_id": [258]},
    )


@pytest.fixture
def phyla() -> Callable[..., Result]:
    """The program as it is installed."""

    def run(*arguments: str, stdin: str = "") -> Result:
        return invoke(Shell.installed(), *arguments, stdin=stdin)

    return run
