"""How Qwen3 marks reasoning and tool calls, release by release, told from the chat template."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phyla.family import (
    ALWAYS_THINKS,
    NEVER_THINKS,
    Dialect,
    History,
    ReasoningMarks,
    Thinking,
    ThinkingSetting,
    switched_by,
)
from phyla.tools.function_xml import FunctionXmlFormat
from phyla.tools.hermes import HermesFormat

if TYPE_CHECKING:
    from phyla.checkpoint import Checkpoint

# The efforts of Qwen3.8; its template refuses others.
_EFFORTS = ("low", "medium", "xhigh")

_MARKS = ReasoningMarks(open="<think>", close="</think>", ending="\n</think>\n\n")


def dialect(checkpoint: Checkpoint) -> Dialect:
    """Chat turns end with `<|im_end|>`, base text with `<|endoftext|>`; files list one or both."""
    template = checkpoint.chat_template or ""
    xml = "<function=" in template
    return Dialect(
        name="qwen3-xml" if xml else "qwen3-hermes",
        extra_eos=("<|im_end|>", "<|endoftext|>"),
        reasoning=_MARKS,
        thinking=_thinking(template),
        tools=FunctionXmlFormat() if xml else HermesFormat(),
        call_ends=("</tool_call>",),
        history=_history(template),
    )


def _thinking(template: str) -> Thinking:
    if "enable_thinking" in template:
        switch = switched_by("enable_thinking")
        if "reasoning_effort" not in template:
            return switch
        efforts = {
            effort: ThinkingSetting(variables={"enable_thinking": True, "reasoning_effort": effort})
            for effort in _EFFORTS
        }
        return Thinking(on=switch.on, off=switch.off, efforts=efforts)
    # The Thinking releases open the span themselves; the Instruct and Coder ones never write one.
    return ALWAYS_THINKS if "<think>" in template else NEVER_THINKS


def _history(template: str) -> History:
    if "<think>" not in template:
        return History(reasoning="none")
    return History(
        # Qwen3.8 keeps all unless told otherwise.
        reasoning="all"
        if "preserve_thinking is undefined" in template
        else "since the last question",
        keep_variable="preserve_thinking" if "preserve_thinking" in template else None,
    )
