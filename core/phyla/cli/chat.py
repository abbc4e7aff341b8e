"""`phyla chat`: a conversation with a model, with commands that start with a slash."""

from __future__ import annotations

import typer  # noqa: TC002 (read by Typer)

from phyla.cli import arguments, failures
from phyla.cli.shell import ModelChoice, Shell


def chat(
    context: typer.Context,
    model: arguments.Model,
    *,
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

    Without a terminal each line of standard input is one message; after a tool
    call, the next line is what the tool answers, an empty one nothing.
    """
    # Here and not above: what they import would slow down `phyla --help`.
    from phyla.cli.ask import Ask, read_reply_options, read_thinking, read_tools_file
    from phyla.cli.talk import Talk

    ask = Ask(
        tools=read_tools_file(tools),
        tool_choice=tool_choice,
        thinking=read_thinking(think=think, effort=effort),
        options=read_reply_options(context),
    )
    with Shell.of(context).engine(ModelChoice.of(context)) as engine:
        Talk(
            engine,
            system=system,
            ask=ask,
            show_reasoning=show_reasoning,
            stats=stats,
            allow_http=allow_http,
            debug=failures.debugging(context),
        ).run()
