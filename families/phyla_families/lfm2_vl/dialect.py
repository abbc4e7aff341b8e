"""How LFM2 marks reasoning and tool calls, told from the chat template."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from phyla.family import ALWAYS_THINKS, NEVER_THINKS, Dialect, History, ReasoningMarks, Thinking
from phyla_families.lfm2_vl.format import BARE_TOOL_CALLS, TOOL_CALLS

if TYPE_CHECKING:
    from phyla.checkpoint import Checkpoint

_MARKS = ReasoningMarks(open="<think>", close="</think>", ending="</think>")


def dialect(checkpoint: Checkpoint) -> Dialect:
    """One dialect for all releases: they differ in what they think and in what history shows.

    LFM2.5 models sometimes leave the markers of a call out, and any may fall into the JSON spelling.
    """
    template = checkpoint.chat_template or ""
    return Dialect(
        name="lfm2",
        extra_eos=("<|im_end|>", "<|endoftext|>"),
        reasoning=_MARKS,
        thinking=_thinking(checkpoint.name, template),
        tools=TOOL_CALLS,
        bare_tools=BARE_TOOL_CALLS,
        call_ends=("<|tool_call_end|>",),
        end_token_is_final=True,
        history=_history(template),
    )


def _thinking(name: str, template: str) -> Thinking:
    """No template has a switch. A model thinks always or never.

    The 1.2B Thinking and Instruct models share a template, so the name decides there.
    """
    return ALWAYS_THINKS if "<think>" in template or "thinking" in name.lower() else NEVER_THINKS


def _history(template: str) -> History:
    # Before 2.5 templates know no field for reasoning; only 2.5's later ones show calls.
    inline = "thinking" not in template.replace("keep_past_thinking", "")
    shown: Literal["since the last question", "all"] = (
        "all" if inline and "</think>" not in template else "since the last question"
    )
    names = ("preserve_thinking", "keep_past_thinking")
    return History(
        reasoning=shown,
        inline=inline,
        calls="tool_calls" in template,
        write=TOOL_CALLS.written,
        keep_variable=next((name for name in names if name in template), None),
    )
