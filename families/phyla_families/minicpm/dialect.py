"""How MiniCPM marks reasoning and tool calls, release by release, told from the chat template."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phyla.family import NEVER_THINKS, Dialect, History, ReasoningMarks, Thinking, switched_by
from phyla.tools.function_xml import FunctionXmlFormat
from phyla.tools.hermes import HermesFormat
from phyla_families.minicpm.format import FunctionTagFormat
from phyla_families.minicpm.python_block import PYTHON_BLOCK

if TYPE_CHECKING:
    from phyla.checkpoint import Checkpoint

_EOS = ("<|im_end|>", "</s>")
_THINK = ReasoningMarks(open="<think>", close="</think>", ending="\n</think>\n\n")
_THOUGHT = ReasoningMarks(
    open="<|thought_start|>", close="<|thought_end|>", ending="\n<|thought_end|>\n"
)


def dialect(checkpoint: Checkpoint) -> Dialect:
    """Chat turns end with `<|im_end|>`, which config.json does not always list.

    The releases differ: MiniCPM 3 and 4 call tools in a block of Python, MiniCPM5 in tags of its
    own, MiniCPM-V 4.5 as Hermes does and 4.6 as Qwen3.5 does.
    """
    template = checkpoint.chat_template or ""
    if "<function name=" in template:
        return Dialect(
            name="minicpm5",
            extra_eos=_EOS,
            reasoning=_THINK,
            thinking=_thinking(template),
            tools=FunctionTagFormat(),
            call_ends=("</function>",),
            call_syntax=("<param", "</param>"),
            history=_history(template),
        )
    if "<tool_call>" in template:
        xml = "<function=" in template
        return Dialect(
            name="minicpm-xml" if xml else "minicpm-hermes",
            extra_eos=_EOS,
            reasoning=_THINK,
            thinking=_thinking(template),
            tools=FunctionXmlFormat() if xml else HermesFormat(),
            call_ends=("</tool_call>",),
            history=_history(template),
        )
    thought = "<|thought_start|>" in template
    return Dialect(
        name="minicpm3" if thought else "minicpm",
        extra_eos=_EOS,
        reasoning=_THOUGHT if thought else _THINK,
        # MiniCPM3 is told to think whenever there are tools, and there is no switch.
        thinking=Thinking() if thought else _thinking(template),
        tools=PYTHON_BLOCK,
        call_ends=("<|tool_call_end|>",),
        history=History(
            reasoning="all" if thought else "none",
            calls=thought and "tool_calls" in template,
            write=PYTHON_BLOCK.written,
        ),
    )


def _thinking(template: str) -> Thinking:
    return switched_by("enable_thinking") if "enable_thinking" in template else NEVER_THINKS


def _history(template: str) -> History:
    shown = "reasoning_content" in template
    return History(reasoning="since the last question" if shown else "none")
