"""`phyla chat`: a conversation with a model, with commands that start with a slash."""

from __future__ import annotations

import typer  # noqa: TC002 (read by Typer)

from phyla.cli import arguments, failures
from phyla.cli.media_order import given_media
from phyla.cli.shell import ModelChoice, Shell
from phyla.modality import MODALITIES


def chat(
    context: typer.Context,
    model: arguments.Model,
    *,
    image: arguments.Images = None,
    audio: arguments.Audios = None,
    video: arguments.Videos = None,
    max_media_tokens: arguments.MaxMediaTokens = None,
    fps: arguments.Fps = None,
    max_frames: arguments.MaxFrames = None,
    allow_http: arguments.AllowHttp = False,
    system: arguments.System = None,
    think: arguments.Think = None,
    effort: arguments.Effort = None,
    reasoning_budget: arguments.ReasoningBudget = None,
    show_reasoning: arguments.ShowReasoning = None,
    tools: arguments.Tools = None,
    tool_choice: arguments.ToolChoice = "auto",
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
    """Talk with a model; /help lists the commands, such as /image FILE.

    Images, audio and videos go with the first message. Without a terminal each
    line of standard input is one message; after a tool call, the next line is
    what the tool answers, an empty one nothing.
    """
    # Here and not above: what they import would slow down `phyla --help`.
    from phyla.cli.ask import Ask, read_reply_options, read_thinking, read_tools_file
    from phyla.cli.file_names import file_names, typed_name
    from phyla.cli.media_input import read_media
    from phyla.cli.media_wishes import read_wishes
    from phyla.cli.talk import Talk

    ask = Ask(
        tools=read_tools_file(tools),
        tool_choice=tool_choice,
        thinking=read_thinking(think=think, effort=effort),
        options=read_reply_options(context),
    )
    given = given_media(context)
    wishes = read_wishes(context, among=MODALITIES)
    attached = read_media(given, allow_http=allow_http, wishes=wishes, keep=True)
    choice = ModelChoice.of(context, needed=tuple(block.type for block in attached))
    with file_names([typed_name(each) for _, each in given]):
        opened = Shell.of(context).engine(choice)
    with opened as engine:
        Talk(
            engine,
            system=system,
            ask=ask,
            show_reasoning=show_reasoning,
            stats=stats,
            attached=attached,
            allow_http=allow_http,
            wishes=wishes,
            debug=failures.debugging(context),
        ).run()
