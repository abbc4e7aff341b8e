"""`phyla chat`: a conversation with a model, with commands that start with a slash."""

from __future__ import annotations

import typer  # noqa: TC002 (read by Typer)

from phyla.cli import arguments, failures
from phyla.cli.shell import ModelChoice, Shell


def chat(
    context: typer.Context,
    model: arguments.Model,
    *,
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
) -> None:
    """Talk with a model; /help lists the commands.

    Without a terminal each line of standard input is one message; after a tool
    call, the next line is what the tool answers, an empty one nothing.
    """
    # Here and not above: what they import would slow down `phyla --help`.
    from phyla.cli.ask import Ask, read_thinking, read_tools_file
    from phyla.cli.talk import Talk
    from phyla.options import read_options

    options = read_options(
        {
            "max_tokens": max_tokens,
            "temperature": temperature,
            "top_p": top_p,
            "top_k": top_k,
            "min_p": min_p,
            "seed": seed,
            "stop": tuple(stop) if stop else None,
            "reasoning_budget": reasoning_budget,
        }
    )
    ask = Ask(
        tools=read_tools_file(tools),
        tool_choice=tool_choice,
        thinking=read_thinking(think=think, effort=effort),
        options=options,
    )
    choice = ModelChoice(
        source=model,
        family=family,
        revision=revision,
        offline=offline or None,
        dtype=dtype,
        max_context=max_context,
    )
    with Shell.of(context).engine(choice) as engine:
        Talk(
            engine,
            system=system,
            ask=ask,
            show_reasoning=show_reasoning,
            stats=stats,
            debug=failures.debugging(context),
        ).run()
