"""How a checkpoint's text is marked: where turns, reasoning and tool calls start and end.

A dialect is data and knows no tokenizer. Whether a marker is one token is asked when a reply is
read; here a marker is its text.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from phyla.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from phyla.messages import ToolCall
    from phyla.tools import ToolFormat

ThinkingLike: TypeAlias = bool | str | None


@dataclass(frozen=True, kw_only=True)
class ReasoningMarks:
    """What stands around a span of reasoning, and where one may stand.

    Attributes:
        open: the text before it.
        close: the text after it.
        title: a word that follows `open` on its line and belongs to it, such as Gemma 4's
            `thought`. Another word on that line names a span that is no reasoning.
        reenter: a span may begin after the answer has begun. Where it may not, `open` and the
            `close` that belongs to it are words of the answer.
        call_closes: a tool call that begins inside a span ends it. Where it does not, its marker
            is part of the reasoning.
        ending: what to feed to a model so that it ends a span and answers.
    """

    open: str
    close: str
    title: str | None = None
    reenter: bool = False
    call_closes: bool = True
    ending: str


@dataclass(frozen=True, kw_only=True)
class ThinkingSetting:
    """How a prompt asks for one way of thinking.

    Attributes:
        variables: what the template is given.
        instruction: what the system message has to say, at its end; a system message is made for it
            if there is none.
    """

    variables: Mapping[str, object] = field(default_factory=dict[str, object])
    instruction: str = ""


@dataclass(frozen=True, kw_only=True)
class Thinking:
    """What a caller may ask for with `thinking=`.

    Attributes:
        on: how to ask for reasoning; None if the model cannot.
        off: how to ask for none; None if the model cannot.
        efforts: how to ask for a certain effort, by its name.
    """

    on: ThinkingSetting | None = None
    off: ThinkingSetting | None = None
    efforts: Mapping[str, ThinkingSetting] = field(default_factory=dict[str, ThinkingSetting])

    @property
    def choices(self) -> tuple[str, ...]:
        """The values of `thinking=` that are understood, as a caller writes them."""
        switches = (("True", self.on), ("False", self.off))
        return (
            *(name for name, setting in switches if setting is not None),
            *(repr(name) for name in self.efforts),
        )


def switched_by(variable: str) -> Thinking:
    """Thinking that a template's boolean variable turns on and off."""
    return Thinking(
        on=ThinkingSetting(variables={variable: True}),
        off=ThinkingSetting(variables={variable: False}),
    )


ALWAYS_THINKS = Thinking(on=ThinkingSetting())
NEVER_THINKS = Thinking(off=ThinkingSetting())


@dataclass(frozen=True, kw_only=True)
class History:
    """What a template shows of earlier assistant turns.

    Attributes:
        reasoning: of which turns the reasoning is shown: of none, of those after the last question
            of the user (so that a loop of tool calls keeps it), or of all.
        inline: the template reads reasoning from the text only, between its marks; it knows no
            field for it.
        calls: it shows tool calls. Where it does not, they are put into the text: by their `raw`,
            or by `write` if they came without.
        write: writes calls as the model does.
        keep_variable: the variable that, set to `keep_value`, keeps all reasoning.
        keep_value: see `keep_variable`.
    """

    reasoning: Literal["none", "since the last question", "all"] = "none"
    inline: bool = False
    calls: bool = True
    write: Callable[[Sequence[ToolCall]], str] | None = None
    keep_variable: str | None = None
    keep_value: bool = True


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """What a family knows about the text of one checkpoint.

    Attributes:
        name: names the dialect in reports.
        extra_eos: tokens, by their text, that end a turn and that neither config.json nor
            generation_config.json lists; those that the vocabulary lacks are ignored.
        reasoning: what stands around reasoning; None if the model writes none.
        thinking: what `thinking=` may ask for.
        tools: how tool calls are written; None if the model writes none.
        bare_tools: a second way to write them, whose opening is no marker but what any text may
            hold, a bracket. It opens a block only where the answer's text would begin.
        call_ends: the texts that close a block of calls. One that closes nothing is dropped.
        end_token_is_final: where an end of `call_ends` is a token of the vocabulary, the token ends
            the block wherever it stands, inside a quoted string too.
        call_syntax: further tokens, by text, that calls are written with. They are read as text
            even where the vocabulary calls them special, which would hide them.
        history: what the template shows of earlier assistant turns.
        unsaid: tokens, by their text, that no reply holds, such as those that stand for pictures;
            the model is kept from saying them.
    """

    name: str
    extra_eos: tuple[str, ...] = ()
    reasoning: ReasoningMarks | None = None
    thinking: Thinking = Thinking()
    tools: ToolFormat | None = None
    bare_tools: ToolFormat | None = None
    call_ends: tuple[str, ...] = ()
    end_token_is_final: bool = False
    call_syntax: tuple[str, ...] = ()
    history: History = History()
    unsaid: tuple[str, ...] = ()

    def opens_reasoning(self, prompt: str) -> bool:
        """Whether a rendered prompt ends inside a span of reasoning, so that the reply begins there.

        That is so when it opens one that neither a close nor an end of turn follows.
        """
        if self.reasoning is None:
            return False
        _, opened, tail = prompt.rpartition(self.reasoning.open)
        ends = (self.reasoning.close, *self.extra_eos)
        return bool(opened) and not any(end in tail for end in ends)

    def thinking_setting(self, thinking: ThinkingLike) -> ThinkingSetting:
        """How to ask for `thinking`; None leaves it to the template.

        Raises:
            RequestError: the model cannot be asked for that.
        """
        if thinking is None:
            return ThinkingSetting()
        choices = self.thinking
        if isinstance(thinking, str):
            setting = choices.efforts.get(thinking)
        else:
            setting = choices.on if thinking else choices.off
        if setting is None:
            raise RequestError(
                f"{_refusal(thinking)} with a model of dialect {self.name!r}.",
                field="thinking",
                expected=", ".join(choices.choices) or None,
                found=thinking,
                hint=f"Use {' or '.join(choices.choices)}, or leave `thinking` out."
                if choices.choices
                else "Leave `thinking` out.",
            )
        return setting

    def thinking_variables(self, thinking: ThinkingLike) -> dict[str, object]:
        """The template variables that ask for `thinking`.

        Raises:
            RequestError: the model cannot be asked for that.
        """
        return dict(self.thinking_setting(thinking).variables)


def _refusal(thinking: bool | str) -> str:
    if isinstance(thinking, str):
        return f"There is no reasoning effort {thinking!r}"
    return "Reasoning cannot be turned on" if thinking else "Reasoning cannot be turned off"
