"""`phyla run`: one prompt, one reply."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from phyla.cli import arguments, failures
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
    system: arguments.System = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Continue the prompt as plain text, without a template.")
    ] = False,
    thinking: arguments.Thinking = None,
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
) -> None:
    """Answer a prompt; the reply goes to standard output as it comes.

    What is piped in is added to the prompt, or is the prompt. Ctrl-C ends the
    reply, with exit code 130.
    """
    # Here and not above: what they import would slow down `phyla --help`.
    from phyla.cli.streaming import follow, speed
    from phyla.options import read_options

    if raw and (system is not None or thinking is not None):
        raise typer.BadParameter(
            "--system and --thinking need a chat template, which --raw leaves out",
            param_hint="--raw",
        )
    options = read_options(
        {
            "max_tokens": max_tokens,
            "temperature": temperature,
            "top_p": top_p,
            "top_k": top_k,
            "min_p": min_p,
            "seed": seed,
            "stop": tuple(stop) if stop else None,
        }
    )
    text = read_prompt(prompt)
    choice = ModelChoice(
        source=model,
        family=family,
        revision=revision,
        offline=offline or None,
        dtype=dtype,
        max_context=max_context,
    )
    with Shell.of(context).engine(choice) as engine:

        def start() -> Stream:
            if raw:
                return engine.stream(engine.encode_text(text), options=options)
            messages = [{"role": "user", "content": text}]
            if system is not None:
                messages.insert(0, {"role": "system", "content": system})
            return engine.stream(messages, thinking=thinking, options=options)

        try:
            reply = follow(start, show=not json)
        except CancelledError:
            raise typer.Exit(failures.INTERRUPTED) from None
    if json:
        typer.echo(reply.model_dump_json())
    if stats:
        failures.notice(speed(reply))
    if reply.finish_reason == "cancelled":
        raise typer.Exit(failures.INTERRUPTED)
