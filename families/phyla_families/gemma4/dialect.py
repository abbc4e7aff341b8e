"""How Gemma 4 marks reasoning and tool calls, told from the chat template."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phyla.family import NEVER_THINKS, Dialect, History, ReasoningMarks, switched_by
from phyla_families.gemma4 import tokens
from phyla_families.gemma4.format import END, QUOTE, TOOL_CALLS

if TYPE_CHECKING:
    from phyla.checkpoint import Checkpoint

# A channel is named on the line of its marker. The model thinks in `thought`, and what it writes in
# any other channel is for the user. It may think more than once in a turn.
_MARKS = ReasoningMarks(
    open="<|channel>", close="<channel|>", title="thought", reenter=True, ending="\n<channel|>"
)


# The 12B model says them at times, and its generation_config.json lists only two of them.
_MEDIA = (
    tokens.IMAGE, tokens.IMAGE_BEGIN, tokens.IMAGE_END,
    tokens.AUDIO, tokens.AUDIO_BEGIN, tokens.AUDIO_END,
    tokens.VIDEO,
)  # fmt: skip


def dialect(checkpoint: Checkpoint) -> Dialect:
    """Turns end with `<turn|>`, and with `<|tool_response>` after a call, which files may not list."""
    template = checkpoint.chat_template or ""
    return Dialect(
        name="gemma4",
        extra_eos=("<turn|>", "<|tool_response>"),
        reasoning=_MARKS,
        thinking=switched_by("enable_thinking") if "enable_thinking" in template else NEVER_THINKS,
        tools=TOOL_CALLS,
        call_ends=(END,),
        end_token_is_final=True,
        call_syntax=(QUOTE,),
        unsaid=_MEDIA,
        history=History(
            # The templates of the first days showed none.
            reasoning="since the last question" if "thinking_text" in template else "none",
            keep_variable="preserve_thinking" if "preserve_thinking" in template else None,
        ),
    )
