"""How Llama and its kin mark turns and tool calls, told from the chat template."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phyla.family import NEVER_THINKS, Dialect, History
from phyla.tools.hermes import HermesFormat
from phyla_families.llama.format import BARE, TAG, LlamaJsonFormat

if TYPE_CHECKING:
    from phyla.checkpoint import Checkpoint
    from phyla.tools import ToolFormat

_EOS = ("<|eot_id|>", "<|eom_id|>", "<|im_end|>")


def dialect(checkpoint: Checkpoint) -> Dialect:
    """Turns end with Llama 3's or ChatML's token, where the vocabulary has one.

    Llama 3 asks for a bare JSON object with `parameters`; many a model shaped like a Llama was
    trained on Hermes' format. Where the template says neither, no call is looked for.
    """
    template = checkpoint.chat_templates.get("tool_use", checkpoint.chat_template or "")
    tools: HermesFormat | LlamaJsonFormat | None = None
    bare: ToolFormat | None = None
    ends: tuple[str, ...] = ()
    name = "llama"
    if "<tool_call>" in template:
        name, tools, ends = "llama-hermes", HermesFormat(), ("</tool_call>",)
    elif '"parameters":' in template and "tools" in template:
        name = "llama3-json"
        tools, bare = LlamaJsonFormat(opens=(TAG,)), LlamaJsonFormat(opens=(BARE,))
    return Dialect(
        name=name,
        extra_eos=_EOS,
        thinking=NEVER_THINKS,
        tools=tools,
        bare_tools=bare,
        call_ends=ends,
        history=History(
            calls="tool_calls" in template,
            write=tools.written if tools is not None else None,
        ),
    )
