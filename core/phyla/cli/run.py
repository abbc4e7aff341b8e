"""`phyla run`: one prompt, one reply."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from phyla.cli import arguments, failures
from phyla.cli.media_order import given_media
from phyla.cli.prompt_input import read_prompt
from phyla.cli.shell import ModelChoice, Shell
from phyla.errors import CancelledError

if TYPE_CHECKING:
    from phyla.engine.stream import Stream


def run(
    context: typer.Context,
    model: arguments.Model,
    prompt: Annotated[
        str | None,
        typer.Argument(
            metavar="PROMPT", help="What to say; - or nothing reads it from standard input."
        ),
    ] = None,
    *,
    image: arguments.Images = None,
    audio: arguments.Audios = None,
    video: arguments.Videos = None,
    max_media_tokens: arguments.MaxMediaTokens = None,
    fps: arguments.Fps = None,
    max_frames: arguments.MaxFrames = None,
    allow_http: arguments.AllowHttp = False,
    system: arguments.System = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Continue the prompt as plain text, without a template.")
    ] = False,
    think: arguments.Think = None,
    effort: arguments.Effort = None,
    reasoning_budget: arguments.ReasoningBudget = None,
    show_reasoning: arguments.ShowReasoning = None,
    tools: arguments.Tools = None,
    tool_choice: arguments.ToolChoice = "auto",
    json: arguments.Json = False,
    stats: arguments.Stats = False,
    max_tokens: arguments.MaxTokens = None,
    temperature: arguments.Temperature = None,
    top_p: arguments.TopP = None,
    top_k: arguments.TopK = None,
    min_p: arguments.MinP = None,
    seed: arguments.Seed = None,
    stop: arguments.Stop = None,
    family: arguments.Family = None,
    revision: arguments.Revision = None,
    offline: arguments.Offline = False,
    dtype: arguments.Dtype = None,
    max_context: arguments.MaxContext = None,
    kv_bits: arguments.KvBits = None,
) -> None:
    """Answer a prompt; the reply goes to standard output as it comes.

    Images, audio and videos come before the prompt, in the order given, and
    need none. What is piped in is added to the prompt, or is the prompt. Tool calls are
    shown on standard error; --json has them too. Ctrl-C ends the reply, with
    exit code 130.
    """
    # Here and not above: what they import would slow down `phyla --help`.
    from phyla.cli.ask import Ask, read_reply_options, read_thinking, read_tools_file
    from phyla.cli.file_names import file_names, typed_name
    from phyla.cli.media_input import read_media
    from phyla.cli.media_wishes import read_wishes
    from phyla.cli.screen import Screen
    from phyla.cli.streaming import follow, speed
    from phyla.messages import Message, Text

    thinking = read_thinking(think=think, effort=effort)
    templated = (system, thinking, tools, None if tool_choice == "auto" else tool_choice)
    if raw and any(each is not None for each in templated):
        raise typer.BadParameter(
            "--system, --think, --effort, --tools and --tool-choice need a chat template, "
            "which --raw leaves out",
            param_hint="--raw",
        )
    options = read_reply_options(context)
    ask = Ask(
        tools=read_tools_file(tools), tool_choice=tool_choice, thinking=thinking, options=options
    )
    given = given_media(context)
    wishes = read_wishes(context, among={modality for modality, _ in given})
    text = read_prompt(prompt, needed=raw or not given)
    media = read_media(given, allow_http=allow_http, wishes=wishes)
    shell = Shell.of(context)
    choice = ModelChoice.of(context, needed=tuple(block.type for block in media))
    named = file_names([typed_name(each) for _, each in given])
    with named, shell.engine(choice) as engine:
        said = (Text(text=text),) if text else ()
        messages = [Message(role="user", content=(*media, *said) if media else text)]
        if system is not None:
            messages.insert(0, Message(role="system", content=system))
        if not raw:
            ask.check(engine, messages)

        def start() -> Stream:
            if raw:
                return engine.stream(engine.encode_text(text, media=media), options=options)
            return ask.stream(engine, messages)

        try:
            reply = follow(
                start, None if json else Screen(reasoning=show_reasoning), leave=shell.leave
            )
        except CancelledError:
            raise typer.Exit(failures.INTERRUPTED) from None
    if json:
        typer.echo(reply.model_dump_json())
    if stats:
        failures.notice(speed(reply))
    if reply.finish_reason == "cancelled":
        raise typer.Exit(failures.INTERRUPTED)
