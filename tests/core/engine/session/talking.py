"""Conversations with a model whose replies are written beforehand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    import phyla
    from phyla.testing import ScriptedEngine


class Talking:
    """A session whose replies are written beforehand."""

    def __init__(self, scripted: ScriptedEngine, **more: Any) -> None:
        self.scripted = scripted
        self.session = scripted.engine.session(**more)

    def says(self, text: str, **options: Any) -> phyla.Reply:
        """The reply that begins so, to which nothing is added; the weights go on behind it."""
        self.prepare(text)
        return self.session.generate({"temperature": 0, **options})

    def prepare(self, text: str) -> list[int]:
        ids = self.scripted.ids(text)
        self.scripted._script.write(self.session.position, ids)
        return ids

    @property
    def text(self) -> str:
        """All that the session holds."""
        return self.scripted.engine.tokenizer.decode(self.session.tokens, keep_special=True)

    def template(self, messages: Sequence[Any], **more: Any) -> str:
        return self.scripted.engine.encode(messages, **more).text


QWEN3_LIKE = r"""
{%- if tools %}{{ "<|im_start|>system\nTools: " + (tools | tojson) + "<|im_end|>\n" }}{% endif %}
{%- for message in messages %}
{%- if message.role == "tool" %}
{{- "<|im_start|>user\n<tool_response>\n" + message.content + "\n</tool_response>" }}
{%- else %}
{{- "<|im_start|>" + message.role + "\n" + message.content }}
{%- for call in message.tool_calls or [] %}
{{- "\n" if message.content }}
{{- "<tool_call>\n{\"name\": \"" + call.function.name + "\", \"arguments\": " }}
{{- call.function.arguments | tojson }}{{ "}\n</tool_call>" }}
{%- endfor %}
{%- endif %}
{{- "<|im_end|>\n" }}
{%- endfor %}
{%- if add_generation_prompt %}{{ "<|im_start|>assistant\n" }}{% endif %}
"""
END = "<|im_end|>"


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


THOUGHT = "<think>\nLet me see.\n</think>\n\nThe answer."
