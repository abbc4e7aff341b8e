"""How NemotronH marks reasoning and tool calls, told from the chat template."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phyla.family import (
    NEVER_THINKS,
    Dialect,
    History,
    ReasoningMarks,
    Thinking,
    ThinkingSetting,
    switched_by,
)
from phyla.tools.function_xml import FunctionXmlFormat
from phyla_families.nemotron_h.format import ToolCallListFormat

if TYPE_CHECKING:
    from phyla.checkpoint import Checkpoint

# Variables that lower the effort, by the name of the effort they set.
_EFFORTS = {"low": "low_effort", "medium": "medium_effort"}


def dialect(checkpoint: Checkpoint) -> Dialect:
    """Nano v2 writes all its marks as plain text; Nemotron 3 has a token for each.

    Turns of v2 are `<SPECIAL_11>User ...`, `<SPECIAL_11>Assistant ... <SPECIAL_12>`: the first ends
    a reply that runs on into the user's turn.
    """
    template = checkpoint.chat_template or ""
    if "<TOOLCALL>" in template:
        return Dialect(
            name="nemotron-v2",
            extra_eos=("<SPECIAL_12>", "<SPECIAL_11>"),
            reasoning=_marks("\n</think>\n\n"),
            thinking=_by_instruction(),
            tools=ToolCallListFormat(),
            call_ends=("</TOOLCALL>",),
            history=History(reasoning="none"),
        )
    if "<think>" not in template:
        return Dialect(name="nemotron-h", extra_eos=("<|im_end|>",), thinking=NEVER_THINKS)
    return Dialect(
        name="nemotron-3",
        extra_eos=("<|im_end|>",),
        reasoning=_marks("\n</think>\n"),
        thinking=_by_variable(template),
        tools=FunctionXmlFormat(),
        call_ends=("</tool_call>",),
        history=History(
            reasoning="since the last question",
            keep_variable="truncate_history_thinking",
            keep_value=False,
        ),
    )


def _marks(ending: str) -> ReasoningMarks:
    return ReasoningMarks(open="<think>", close="</think>", ending=ending)


def _by_instruction() -> Thinking:
    """The template of v2 looks for these words in every message and deletes them."""
    return Thinking(
        on=ThinkingSetting(instruction="/think"), off=ThinkingSetting(instruction="/no_think")
    )


def _by_variable(template: str) -> Thinking:
    switch = switched_by("enable_thinking")
    efforts = {
        effort: ThinkingSetting(variables={"enable_thinking": True, variable: True})
        for effort, variable in _EFFORTS.items()
        if variable in template
    }
    return Thinking(on=switch.on, off=switch.off, efforts=efforts)
